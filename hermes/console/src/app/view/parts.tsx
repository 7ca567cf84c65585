// Small pieces that several views use.
import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "./icons";

interface IconButtonProps {
  icon: IconName;
  label: string;
  onClick(): void;
  pressed?: boolean;
  expanded?: boolean;
  disabled?: boolean;
  class?: string;
}

export function IconButton({ icon, label, onClick, pressed, expanded, disabled, class: extra }: IconButtonProps) {
  return (
    <button
      type="button"
      class={`icon-button ${extra ?? ""}`}
      aria-label={label}
      title={label}
      aria-pressed={pressed}
      aria-expanded={expanded}
      disabled={disabled}
      onClick={onClick}
    >
      <Icon name={icon} />
    </button>
  );
}

export function CopyButton({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button type="button" class="quiet" onClick={() => void copy().catch(() => undefined)}>
      {copied ? "Copied" : "Copy"}
    </button>
  );
}

const FOCUSABLE = "a[href],button:not([disabled]),input:not([disabled]),textarea:not([disabled]),select:not([disabled]),[tabindex='0']";

/** Focus goes in, stays in while it is there, and goes back to where it was. */
export function useFocusTrap(container: RefObject<HTMLElement>): void {
  useEffect(() => {
    const element = container.current;
    if (!element) return undefined;
    const before = document.activeElement as HTMLElement | null;
    const inside = (): HTMLElement[] => [...element.querySelectorAll<HTMLElement>(FOCUSABLE)].filter((one) => one.offsetParent !== null);
    (element.querySelector<HTMLElement>("[data-autofocus]") ?? inside()[0] ?? element).focus();
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "Tab") return;
      const all = inside();
      const first = all[0];
      const last = all.at(-1);
      if (!first || !last) return;
      if (event.shiftKey && document.activeElement === first) {
        event.preventDefault();
        last.focus();
      } else if (!event.shiftKey && document.activeElement === last) {
        event.preventDefault();
        first.focus();
      }
    };
    element.addEventListener("keydown", onKey);
    return () => {
      element.removeEventListener("keydown", onKey);
      if (before?.isConnected) before.focus();
      else document.getElementById("composer")?.focus();
    };
  }, []);
}

interface DialogProps {
  title: string;
  children: ComponentChildren;
  onEscape?(): void;
  role?: "dialog" | "alertdialog";
  class?: string;
}

let dialogs = 0;

export function Dialog({ title, children, onEscape, role = "dialog", class: extra }: DialogProps) {
  const box = useRef<HTMLDivElement>(null);
  const [id] = useState(() => `dialog-${++dialogs}`);
  useFocusTrap(box);
  return (
    <div class="backdrop">
      <div
        ref={box}
        class={`dialog ${extra ?? ""}`}
        role={role}
        aria-modal="true"
        aria-labelledby={id}
        tabIndex={-1}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            event.stopPropagation();
            onEscape?.();
          }
        }}
      >
        <h2 id={id}>{title}</h2>
        {children}
      </div>
    </div>
  );
}

/** The current time, looked at again and again while somebody needs it. */
export function useNow(every: number, active = true): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (!active) return undefined;
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every, active]);
  return active ? now : Date.now();
}

export function duration(milliseconds: number): string {
  const ms = Math.max(0, milliseconds);
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function count(value: number): string {
  if (value < 1000) return String(value);
  if (value < 1_000_000) return `${(value / 1000).toFixed(value < 10_000 ? 1 : 0)}k`;
  return `${(value / 1_000_000).toFixed(1)}M`;
}
