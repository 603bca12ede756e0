// Policies of keys: chosen by name or written as a document, and described in words.
import { useState } from "preact/hooks";
import { BASE, type Refusal, type Schemas, address, send } from "../api/client";
import { useAction, useRead } from "../parts/hooks";
import { Problem } from "../parts/elements";

export type Policy = Schemas["PolicyDocument"];
type Key = Schemas["KeyBody"];

/** Chosen policy. `text` is the document of a custom policy, null for a built-in one. */
export interface ChosenPolicy {
  name: string;
  text: string | null;
}

interface Statement {
  Effect: string;
  Action: string | string[];
  Resource: string | string[];
}

const EXAMPLE = `{"Version": "1", "Statement": [
  {"Effect": "Allow", "Action": ["pai:Get*", "pai:List*"], "Resource": "acs:pai:*:*:resourcegroup/GROUP"}
]}`;

/** Return the problem of a policy before it is sent; empty if it is valid. */
export function problemOf(one: ChosenPolicy): string {
  if (one.text === null) return "";
  if (!one.name.trim()) return "Enter a name.";
  if (!one.text.trim()) return "Paste the document, or load it from a file.";
  try {
    const found: unknown = JSON.parse(one.text);
    return found !== null && typeof found === "object" && !Array.isArray(found) ? "" : "The document must be a JSON object.";
  } catch (error) {
    return `This is not valid JSON: ${error instanceof Error ? error.message : ""}`;
  }
}

/** Return a policy as the API takes it. */
export const toBody = (one: ChosenPolicy): unknown => (one.text === null ? one.name : { name: one.name.trim(), document: JSON.parse(one.text) as unknown });

const policyIndex = (error: Refusal | null): number => Number(/^policies\[(\d+)\]/.exec(error?.field ?? "")?.[1] ?? -1);

/** Editor of a list of policies. Errors appear beside the policy that they are about. */
export function PolicyEditor(given: { shipped: readonly Policy[]; chosen: readonly ChosenPolicy[]; choose: (policies: ChosenPolicy[]) => void; error: Refusal | null }) {
  const { shipped, chosen, choose } = given;
  const refused = policyIndex(given.error);
  const change = (at: number, to: ChosenPolicy | null) => choose(chosen.flatMap((one, place) => (place !== at ? [one] : to ? [to] : [])));
  const toggle = (name: string, on: boolean) => choose(on ? [...chosen, { name, text: null }] : chosen.filter((one) => one.text !== null || one.name !== name));
  return (
    <fieldset class="policies">
      <legend>Policies limit the key to what they allow. Without policies it may do all that its role allows</legend>
      {shipped.map((one) => (
        <label key={one.name} title={statements(one.document).map(describeStatement).join("\n")}>
          <input type="checkbox" checked={chosen.some((other) => other.text === null && other.name === one.name)} onChange={(event) => toggle(one.name, event.currentTarget.checked)} /> {one.name}
        </label>
      ))}
      <button type="button" onClick={() => choose([...chosen, { name: `policy-${chosen.length + 1}`, text: "" }])}>
        Add a custom policy
      </button>
      {chosen.map((one, at) => one.text !== null && <CustomPolicy key={at} one={one} refused={refused === at ? (given.error?.message ?? "") : ""} change={(to) => change(at, to)} />)}
    </fieldset>
  );
}

function CustomPolicy({ one, refused, change }: { one: ChosenPolicy; refused: string; change: (to: ChosenPolicy | null) => void }) {
  const text = one.text ?? "";
  const problem = (text.trim() ? problemOf(one) : "") || refused;
  const load = async (input: HTMLInputElement) => {
    const file = input.files?.[0];
    if (file) change({ name: file.name.replace(/\.[^.]*$/, ""), text: await file.text() });
  };
  return (
    <div class="own">
      <div class="line">
        <label>
          Name of the policy <input value={one.name} maxLength={100} required onInput={(event) => change({ ...one, name: event.currentTarget.value })} />
        </label>
        <label>
          From a file <input type="file" accept=".json,application/json" onChange={(event) => void load(event.currentTarget)} />
        </label>
        <button type="button" aria-label={`Remove ${one.name}`} onClick={() => change(null)}>
          Remove
        </button>
      </div>
      <textarea
        aria-label={`Document of ${one.name}`}
        aria-invalid={problem !== ""}
        rows={6}
        spellcheck={false}
        required
        placeholder={EXAMPLE}
        value={text}
        onInput={(event) => change({ ...one, text: event.currentTarget.value })}
      />
      {problem ? (
        <p class="problem" role="alert">
          {problem}
        </p>
      ) : (
        <Statements document={text.trim() ? (JSON.parse(text) as unknown) : null} />
      )}
      <small>
        Format of Alibaba Cloud’s RAM; <code>*</code> matches any characters. Without an Allow an action is denied, and a Deny overrides an Allow.
      </small>
    </div>
  );
}

const list = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : value === undefined ? [] : [String(value)]);

function statements(document: unknown): Statement[] {
  const found = (document as { Statement?: unknown } | null)?.Statement;
  return Array.isArray(found) ? found.filter((one): one is Statement => one !== null && typeof one === "object") : [];
}

const SLOTS = 5;

/** Describe a resource: `resource group rg-1 of every project`. */
function describeResource(text: string): string {
  const parts = text.split(":");
  if (text === "*" || parts.length < SLOTS) return text === "*" ? "everything" : text;
  const [account, relative] = [parts[SLOTS - 2]!, parts.slice(SLOTS - 1).join(":")];
  const [kind, ...name] = relative.split("/");
  const what = relative === "*" ? "everything" : `${kind === "resourcegroup" ? "resource group" : kind} ${name.join("/")}`;
  return `${what} of ${account === "*" ? "every project" : `project ${account}`}`;
}

const describeStatement = (one: Statement): string => `${one.Effect === "Deny" ? "May not" : "May"} ${list(one.Action).join(", ")} on ${list(one.Resource).map(describeResource).join("; ")}`;

/** Describe a document, a line for each statement. */
function Statements({ document }: { document: unknown }) {
  const found = statements(document);
  if (!found.length) return null;
  return (
    <ul class="described">
      {found.map((one, at) => (
        <li key={at} class={one.Effect === "Deny" ? "deny" : ""}>
          <b>{one.Effect === "Deny" ? "May not" : "May"}</b> <code>{list(one.Action).join(", ")}</code> on {list(one.Resource).map(describeResource).join("; ")}
        </li>
      ))}
    </ul>
  );
}

const ROLES: Record<string, string> = {
  reader: "read jobs, metrics, logs, events and nodes",
  writer: "read, and send the data of agents and jobs",
  admin: "do everything, keys and retention too",
};

/** Permissions of a key, and the form that changes its policies. */
export function KeyPermissions(given: { of: Key; shipped: readonly Policy[]; own: boolean; changed: () => void }) {
  const { of: key } = given;
  const response = useRead<Schemas["KeyPolicies"]>(address("/api/jobmeter/v1/keys/{key}/policies", { key: key.id }));
  const [editing, setEditing] = useState<ChosenPolicy[] | null>(null);
  const { error, perform, clear } = useAction();
  if (response.error) return <Problem error={response.error} reload={response.reload} />;
  if (!response.data) return null;
  const { policies } = response.data;
  const names = new Set(given.shipped.map((one) => one.name));
  const edit = () => setEditing(policies.map((one) => ({ name: one.name, text: names.has(one.name) ? null : JSON.stringify(one.document, null, 2) })));
  const choose = (chosen: ChosenPolicy[]) => {
    setEditing(chosen);
    clear();
  };
  const save = async (event: SubmitEvent) => {
    event.preventDefault();
    if (!editing || editing.some(problemOf)) return;
    const done = await perform(() => send("PUT", `${BASE}/keys/${encodeURIComponent(key.id)}/policies`, { policies: editing.map(toBody) }));
    if (!done) return;
    setEditing(null);
    response.reload();
    given.changed();
  };
  return (
    <div class="panel allowed">
      <p>
        Role {key.role} may {ROLES[key.role] ?? "do what it allows"}
        {key.project ? `, only in project ${key.project}` : ", in every project"}. {policies.length > 0 ? "Its policies restrict this to:" : "No policy restricts it."}
      </p>
      {editing === null && policies.map((one) => (
        <div key={one.name}>
          <b>{one.name}</b>
          <Statements document={one.document} />
        </div>
      ))}
      {editing === null && key.revoked === null && !given.own && (
        <button type="button" onClick={edit}>
          Change policies
        </button>
      )}
      {editing !== null && (
        <form class="make" onSubmit={(event) => void save(event)}>
          <PolicyEditor shipped={given.shipped} chosen={editing} choose={choose} error={error} />
          <button type="submit" class="primary">
            Save
          </button>
          <button type="button" onClick={() => setEditing(null)}>
            Cancel
          </button>
        </form>
      )}
      {error && policyIndex(error) < 0 && <Problem error={error} />}
    </div>
  );
}
