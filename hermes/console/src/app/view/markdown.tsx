// Markdown as elements. The text is taken apart by a lexer and put together as nodes of our own: nothing that a model
// writes is ever parsed as HTML, links are held to a few schemes, and pictures are shown as links.
import { lexer, type Token, type Tokens } from "marked";
import type { ComponentChildren } from "preact";
import { memo } from "preact/compat";
import { useMemo } from "preact/hooks";
import { CopyButton } from "./parts";

const SCHEMES = /^(https?:|mailto:)/i;
const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" };

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const tokens = useMemo(() => lexer(text, { gfm: true, breaks: false }), [text]);
  return <div class="prose">{blocks(tokens)}</div>;
});

function plain(text: string): string {
  return text.replace(/&(amp|lt|gt|quot|#39);/g, (whole, name: string) => ENTITIES[name] ?? whole);
}

function blocks(tokens: Token[]): ComponentChildren {
  return tokens.map((token, index) => block(token, index));
}

function block(token: Token, key: number): ComponentChildren {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      return heading(token as Tokens.Heading, key);
    case "paragraph":
      return <p key={key}>{inline((token as Tokens.Paragraph).tokens)}</p>;
    case "text": {
      const { tokens, text } = token as Tokens.Text;
      return <span key={key}>{tokens ? inline(tokens) : plain(text)}</span>;
    }
    case "code":
      return <CodeBlock key={key} code={(token as Tokens.Code).text} language={(token as Tokens.Code).lang ?? ""} />;
    case "blockquote":
      return <blockquote key={key}>{blocks((token as Tokens.Blockquote).tokens)}</blockquote>;
    case "list":
      return list(token as Tokens.List, key);
    case "table":
      return table(token as Tokens.Table, key);
    case "hr":
      return <hr key={key} />;
    default:
      // HTML among it: shown as it was written.
      return <p key={key}>{(token as { raw: string }).raw}</p>;
  }
}

/** Headings of an answer stand below those of the page. */
function heading(token: Tokens.Heading, key: number): ComponentChildren {
  const children = inline(token.tokens);
  if (token.depth <= 1) return <h3 key={key}>{children}</h3>;
  if (token.depth === 2) return <h4 key={key}>{children}</h4>;
  return <h5 key={key}>{children}</h5>;
}

function list(token: Tokens.List, key: number): ComponentChildren {
  const items = token.items.map((item, index) => (
    <li key={index} class={item.task ? "task" : undefined}>
      {item.task && <input type="checkbox" checked={item.checked} disabled aria-label={item.checked ? "done" : "open"} />}
      {blocks(item.tokens.filter((inner) => (inner.type as string) !== "checkbox"))}
    </li>
  ));
  if (!token.ordered) return <ul key={key}>{items}</ul>;
  return (
    <ol key={key} start={typeof token.start === "number" ? token.start : undefined}>
      {items}
    </ol>
  );
}

function table(token: Tokens.Table, key: number): ComponentChildren {
  return (
    <div class="table" key={key} tabIndex={0} role="group" aria-label="Table">
      <table>
        <thead>
          <tr>
            {token.header.map((cell, index) => (
              <th key={index} scope="col" class={cell.align ?? undefined}>
                {inline(cell.tokens)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {token.rows.map((row, number) => (
            <tr key={number}>
              {row.map((cell, index) => (
                <td key={index} class={cell.align ?? undefined}>
                  {inline(cell.tokens)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function inline(tokens: Token[]): ComponentChildren {
  return tokens.map((token, index) => span(token, index));
}

function span(token: Token, key: number): ComponentChildren {
  switch (token.type) {
    case "strong":
      return <strong key={key}>{inline((token as Tokens.Strong).tokens)}</strong>;
    case "em":
      return <em key={key}>{inline((token as Tokens.Em).tokens)}</em>;
    case "del":
      return <del key={key}>{inline((token as Tokens.Del).tokens)}</del>;
    case "codespan":
      return <code key={key}>{plain((token as Tokens.Codespan).text)}</code>;
    case "br":
      return <br key={key} />;
    case "link":
      return link(token as Tokens.Link, key);
    case "image": {
      const image = token as Tokens.Image;
      return anchor(image.href, image.text || image.href, key);
    }
    case "escape":
      return plain((token as Tokens.Escape).text);
    case "text": {
      const text = token as Tokens.Text;
      return text.tokens ? <span key={key}>{inline(text.tokens)}</span> : plain(text.text);
    }
    default:
      return (token as { raw: string }).raw;
  }
}

function link(token: Tokens.Link, key: number): ComponentChildren {
  return anchor(token.href, inline(token.tokens), key);
}

function anchor(href: string, children: ComponentChildren, key: number): ComponentChildren {
  if (!SCHEMES.test(href)) return <span key={key}>{children}</span>;
  return (
    <a key={key} href={href} target="_blank" rel="noreferrer noopener">
      {children}
    </a>
  );
}

function CodeBlock({ code, language }: { code: string; language: string }) {
  return (
    <figure class="code">
      <figcaption>
        <span>{language.split(/\s/)[0] || "text"}</span>
        <CopyButton text={code} />
      </figcaption>
      <pre tabIndex={0} role="region" aria-label={`Code${language ? `, ${language}` : ""}`}>
        <code>{code}</code>
      </pre>
    </figure>
  );
}
