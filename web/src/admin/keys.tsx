// Keys: who has one, making one whose secrets are shown once, revoking.
import { useState } from "preact/hooks";
import { BASE, Refusal, type Schemas, address } from "../api/client";
import { send } from "../api/send";
import { useRead } from "../parts/hooks";
import { Moment, Problem, Section } from "../parts/small";
import { Confirm } from "./confirm";
import { Refused, type Who } from "./page";

type Key = Schemas["KeyBody"];
type Made = Schemas["CreatedKeyBody"];

export function Keys({ who }: { who: Who }) {
  const response = useRead<Schemas["KeyList"]>(address("/api/jobmeter/v1/keys"));
  const [made, setMade] = useState<{ name: string; key: Made } | null>(null);
  const [old, setOld] = useState(false);
  const [error, setError] = useState<Refusal | null>(null);
  if (response.error) return <Refused error={response.error} who="keys" again={response.again} />;
  if (!response.data) return null;
  const valid = response.data.keys.filter((key) => key.revoked === null);
  const shown = old ? response.data.keys : valid;
  const revoked = response.data.keys.length - valid.length;
  const revoke = async (key: Key) => {
    setError(null);
    try {
      await send("DELETE", `${BASE}/keys/${encodeURIComponent(key.id)}`);
    } catch (problem) {
      if (problem instanceof Refusal) setError(problem);
    }
    response.again();
  };
  const aside = revoked > 0 && (
    <button type="button" aria-pressed={old} onClick={() => setOld(!old)}>
      {revoked} revoked
    </button>
  );
  return (
    <>
      {made && <Secrets name={made.name} made={made.key} done={() => setMade(null)} />}
      <Make
        who={who}
        made={(name, key) => {
          setMade({ name, key });
          response.again();
        }}
      />
      <Section id="keys" title={`${valid.length} ${valid.length === 1 ? "key" : "keys"}`} aside={aside}>
        {error && <Problem error={error} />}
        <div class="wide" tabIndex={0} role="region" aria-label="Keys">
          <table>
            <thead>
              <tr>
                <th scope="col">Name</th>
                <th scope="col">Role</th>
                <th scope="col">Policies</th>
                <th scope="col">Project</th>
                <th scope="col">Access key</th>
                <th scope="col">Made</th>
                <th scope="col">Last used</th>
                <th scope="col">
                  <span class="hidden">Revoke</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {shown.map((key) => (
                <tr key={key.id}>
                  <th scope="row">{key.name}</th>
                  <td>{key.role}</td>
                  <td>{key.policies.length ? key.policies.join(", ") : <span class="none">none</span>}</td>
                  <td>{key.project ?? "every project"}</td>
                  <td class="id">{key.access_key_id}</td>
                  <td>
                    <Moment ms={key.created} short />
                  </td>
                  <td>{key.last_used === null ? <span class="none">never</span> : <Moment ms={key.last_used} short />}</td>
                  <td>
                    {key.revoked !== null ? (
                      <span class="none">
                        revoked <Moment ms={key.revoked} short />
                      </span>
                    ) : key.id === who.id ? (
                      <span class="none">yours</span>
                    ) : (
                      <Confirm text="Revoke" name={key.name} sure="Revoke it now" act={() => void revoke(key)} />
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Section>
    </>
  );
}

function Secrets({ name, made, done }: { name: string; made: Made; done: () => void }) {
  const rows = [
    ["Token", made.token],
    ["Access key", made.access_key_id],
    ["Secret", made.access_key_secret],
  ];
  return (
    <div class="notice secrets" role="status">
      <strong>Key {name} is made. Keep these now: they are not shown again.</strong>
      <dl>
        {rows.map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>
              <code>{value}</code>
              <button type="button" aria-label={`Copy ${label}`} onClick={() => void navigator.clipboard?.writeText(value ?? "")}>
                Copy
              </button>
            </dd>
          </div>
        ))}
      </dl>
      <button type="button" class="primary" onClick={done}>
        I have them
      </button>
    </div>
  );
}

function Make({ who, made }: { who: Who; made: (name: string, key: Made) => void }) {
  const policies = useRead<Schemas["PolicyNames"]>(address("/api/jobmeter/v1/policies"));
  const [error, setError] = useState<Refusal | null>(null);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const given = new FormData(form);
    const name = String(given.get("name") ?? "").trim();
    const body = { name, role: given.get("role"), project: String(given.get("project") ?? "").trim() || null, policies: given.getAll("policy").filter(Boolean) };
    setError(null);
    try {
      made(name, await send<Made>("POST", `${BASE}/keys`, body));
      form.reset();
    } catch (problem) {
      if (problem instanceof Refusal) setError(problem);
    }
  };
  return (
    <Section id="make" title="Make a key">
      <form class="make" onSubmit={(event) => void submit(event)}>
        <label>
          Name <input name="name" required maxLength={128} autocomplete="off" placeholder="ci" />
        </label>
        <label>
          Role
          <select name="role">
            <option value="reader">reader: may look</option>
            <option value="writer">writer: agents and jobs</option>
            <option value="admin">admin: everything</option>
          </select>
        </label>
        <label>
          Project
          <input name="project" maxLength={64} autocomplete="off" value={who.project ?? ""} readOnly={who.project !== null} placeholder="every project" />
        </label>
        <fieldset class="policies">
          <legend>Only what one of these policies allows; none: all that the role may</legend>
          {(policies.data?.policies ?? []).map((name) => (
            <label key={name}>
              <input type="checkbox" name="policy" value={name} /> {name}
            </label>
          ))}
        </fieldset>
        <button type="submit" class="primary">
          Make key
        </button>
      </form>
      {error && <Problem error={error} />}
    </Section>
  );
}
