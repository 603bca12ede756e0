// Keys: list, create (the secrets are shown once) and revoke.
import { Fragment } from "preact";
import { useState } from "preact/hooks";
import { BASE, type Schemas, address, send } from "../api/client";
import { useAction, useRead } from "../parts/hooks";
import { CopyButton, Moment, Problem, Section } from "../parts/elements";
import { Confirm } from "./confirm";
import { NewKeyForm } from "./new-key";
import { KeyPermissions } from "./policies";
import { AccessProblem, type Who } from "./page";

type Key = Schemas["KeyBody"];
type Made = Schemas["CreatedKeyBody"];

export function Keys({ who }: { who: Who }) {
  const response = useRead<Schemas["KeyList"]>(address("/api/jobmeter/v1/keys"));
  const [made, setMade] = useState<{ name: string; key: Made } | null>(null);
  const [old, setOld] = useState(false);
  const [opened, setOpened] = useState("");
  const { error, perform } = useAction();
  const shipped = useRead<Schemas["PolicyNames"]>(address("/api/jobmeter/v1/policies"));
  const documents = shipped.data?.documents ?? [];
  if (response.error) return <AccessProblem error={response.error} who="keys" reload={response.reload} />;
  if (!response.data) return null;
  const valid = response.data.keys.filter((key) => key.revoked === null);
  const shown = old ? response.data.keys : valid;
  const revoked = response.data.keys.length - valid.length;
  const revoke = async (key: Key) => {
    await perform(() => send("DELETE", `${BASE}/keys/${encodeURIComponent(key.id)}`));
    response.reload();
  };
  const aside = revoked > 0 && (
    <button type="button" aria-pressed={old} onClick={() => setOld(!old)}>
      {revoked} revoked
    </button>
  );
  return (
    <>
      {made && <Secrets name={made.name} made={made.key} done={() => setMade(null)} />}
      <NewKeyForm
        who={who}
        shipped={documents}
        made={(name, key) => {
          setMade({ name, key });
          response.reload();
        }}
      />
      <Section id="keys" title={`${valid.length} ${valid.length === 1 ? "key" : "keys"}`} aside={aside}>
        {error && <Problem error={error} />}
        {valid.every((key) => key.id === who.id) && <p class="hint">Only your own key so far. Create one for each agent (role writer), program and person (role reader), so that you can revoke each separately.</p>}
        <div class="wide" tabIndex={0} role="region" aria-label="Keys">
          <table>
            <thead>
              <tr>
                <th scope="col">Name</th>
                <th scope="col">Role</th>
                <th scope="col">Policies</th>
                <th scope="col">Project</th>
                <th scope="col">Access key</th>
                <th scope="col">Created</th>
                <th scope="col">Last used</th>
                <th scope="col">
                  <span class="hidden">Revoke</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {shown.map((key) => (
                <Fragment key={key.id}>
                <tr>
                  <th scope="row">{key.name}</th>
                  <td>{key.role}</td>
                  <td>
                    <button type="button" class="link" aria-expanded={opened === key.id} onClick={() => setOpened(opened === key.id ? "" : key.id)}>
                      {key.policies.length ? key.policies.join(", ") : "full role"}
                      <span class="hidden">: permissions of {key.name}</span>
                    </button>
                  </td>
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
                      <span class="none">your key</span>
                    ) : (
                      <Confirm text="Revoke" name={key.name} sure="Revoke now" act={() => void revoke(key)} />
                    )}
                  </td>
                </tr>
                {opened === key.id && (
                  <tr class="opened">
                    <td colSpan={8}>
                      <KeyPermissions of={key} shipped={documents} own={key.id === who.id} changed={response.reload} />
                    </td>
                  </tr>
                )}
                </Fragment>
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
      <strong>Key {name} was created. Copy these now: they are not shown again.</strong>
      <dl>
        {rows.map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>
              <code>{value}</code>
              <CopyButton text={value ?? ""} name={label ?? ""} />
            </dd>
          </div>
        ))}
      </dl>
      <button type="button" class="primary" onClick={done}>
        Done
      </button>
    </div>
  );
}
