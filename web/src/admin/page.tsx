// Administration: keys, API usage, retention, log shippers.
import type { ComponentChildren } from "preact";
import type { Refusal, Schemas } from "../api/client";
import { Notice, Problem } from "../parts/elements";
import { href } from "../router";
import { Keys } from "./keys";
import { RetentionPage } from "./retention";
import { ShippersPage } from "./shippers";
import { UsageView } from "./usage";

export type Who = Schemas["WhoAmI"];
const PARTS = [
  ["keys", "Keys"],
  ["usage", "API usage"],
  ["retention", "Retention"],
  ["shippers", "Log shippers"],
] as const;

export function AdminPage({ part, who, query }: { part: string; who: Who; query: URLSearchParams }) {
  const here = PARTS.find(([name]) => name === part)?.[0] ?? "keys";
  return (
    <>
      <div class="heading">
        <h1>Administration</h1>
        <nav class="tabs" aria-label="Administration">
          {PARTS.map(([name, text]) => (
            <a key={name} href={href(["admin", name])} aria-current={name === here ? "page" : undefined}>
              {text}
            </a>
          ))}
        </nav>
      </div>
      {here === "usage" && <UsageView query={query} />}
      {here === "keys" && <Keys who={who} />}
      {here === "retention" && <RetentionPage who={who} />}
      {here === "shippers" && <ShippersPage />}
    </>
  );
}

/** Show an error. For a 403, say who may see the page. */
export function AccessProblem({ error, who, reload }: { error: Refusal; who: string; reload?: () => void }): ComponentChildren {
  if (error.status !== 403) return <Problem error={error} {...(reload ? { reload } : {})} />;
  return (
    <Notice title={`Your key may not see ${who}.`}>
      <p>{error.message}. Sign in with a key of role admin, or ask the administrator of this server.</p>
    </Notice>
  );
}
