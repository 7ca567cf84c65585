// Line icons, drawn on a 20 by 20 grid. They say nothing to a screen reader: the control around them does.
const PATHS = {
  menu: "M3 5h14M3 10h14M3 15h14",
  plus: "M10 4v12M4 10h12",
  send: "M10 16V4M5 9l5-5 5 5",
  clip: "M15 9.5l-5.2 5.2a3.2 3.2 0 01-4.5-4.5l6-6a2.1 2.1 0 013 3l-5.9 5.9a1 1 0 01-1.5-1.4l5.2-5.2",
  stop: "M6 6h8v8H6z",
  close: "M5 5l10 10M15 5L5 15",
  check: "M4 10.5l4 4 8-9",
  chevron: "M7 5l5 5-5 5",
  down: "M5 8l5 5 5-5",
  edit: "M4 16l.8-3.4L13 4.4l2.6 2.6-8.2 8.2zM11.5 6l2.6 2.6",
  copy: "M7 7h9v9H7zM4 13V4h9",
  tree: "M10 3v4M10 7H5v4M10 7h5v4M5 11v1M15 11v1M3.5 12h3v4h-3zM13.5 12h3v4h-3z",
  clock: "M10 4a6 6 0 100 12 6 6 0 000-12zM10 7v3.2l2.2 1.4",
  sun: "M10 7a3 3 0 100 6 3 3 0 000-6zM10 2v2M10 16v2M2 10h2M16 10h2M4.5 4.5l1.3 1.3M14.2 14.2l1.3 1.3M4.5 15.5l1.3-1.3M14.2 5.8l1.3-1.3",
  moon: "M15.5 12.2A6 6 0 017.8 4.5a6 6 0 107.7 7.7z",
  auto: "M10 4a6 6 0 100 12zM10 4a6 6 0 010 12",
  exit: "M8 4H4v12h4M12 7l3 3-3 3M15 10H8",
  trash: "M4 6h12M8 6V4h4v2M6 6l.7 10h6.6L14 6",
  download: "M10 4v8M6.5 9l3.5 3.5L13.5 9M4 16h12",
  tool: "M12.5 4.2a3.6 3.6 0 00-4.3 4.6L3.5 13.5l3 3 4.7-4.7a3.6 3.6 0 004.6-4.3l-2.3 2.2-2.2-.6-.6-2.2z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
