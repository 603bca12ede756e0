// Form that creates a key: role, project and policies.
import { useState } from "preact/hooks";
import { BASE, type Schemas, send } from "../api/client";
import { useAction } from "../parts/hooks";
import { Problem, Section } from "../parts/elements";
import type { Who } from "./page";
import { PolicyEditor, type ChosenPolicy, type Policy, toBody, problemOf } from "./policies";

type Made = Schemas["CreatedKeyBody"];

export function NewKeyForm({ who, shipped, made }: { who: Who; shipped: readonly Policy[]; made: (name: string, key: Made) => void }) {
  const [policies, setPolicies] = useState<ChosenPolicy[]>([]);
  const { error, perform, clear } = useAction();
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    if (policies.some(problemOf)) return;
    const given = new FormData(form);
    const name = String(given.get("name") ?? "").trim();
    const body = { name, role: given.get("role") || null, project: String(given.get("project") ?? "").trim() || null, policies: policies.map(toBody) };
    await perform(async () => {
      made(name, await send<Made>("POST", `${BASE}/keys`, body));
      form.reset();
      setPolicies([]);
    });
  };
  // The error was about the previous policies.
  const choose = (chosen: ChosenPolicy[]) => {
    setPolicies(chosen);
    clear();
  };
  return (
    <Section id="make" title="Create a key">
      <form class="make" onSubmit={(event) => void submit(event)}>
        <label>
          Name <input name="name" required maxLength={128} autocomplete="off" placeholder="ci" />
        </label>
        <label>
          Role
          <select name="role">
            <option value="reader">reader: reads only</option>
            <option value="writer">writer: also sends data</option>
            <option value="admin">admin: everything</option>
            {policies.length > 0 && <option value="">none: only its policies</option>}
          </select>
        </label>
        <label>
          Project
          <input name="project" maxLength={64} autocomplete="off" value={who.project ?? ""} readOnly={who.project !== null} placeholder="every project" />
        </label>
        <PolicyEditor shipped={shipped} chosen={policies} choose={choose} error={error} />
        <button type="submit" class="primary">
          Create key
        </button>
      </form>
      {error && !error.field.startsWith("policies[") && <Problem error={error} />}
    </Section>
  );
}
