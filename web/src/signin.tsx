import { useState } from "preact/hooks";
import { type Schemas, BASE, Refusal, read, send } from "./api/client";

const UNKNOWN = "This token belongs to no key of this server.";

/** Sign in with the token of a key, or with a link from the command line. */
export function SignIn({ reason, entered }: { reason: string; entered: (who: Schemas["WhoAmI"]) => void }) {
  const [problem, setProblem] = useState(reason);
  const [busy, setBusy] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const field = (event.target as HTMLFormElement).elements.namedItem("token") as HTMLInputElement;
    setBusy(true);
    try {
      await send("POST", `${BASE}/session`, undefined, `Bearer ${field.value.trim()}`);
      entered(await read<Schemas["WhoAmI"]>(`${BASE}/whoami`));
    } catch (error) {
      setProblem(error instanceof Refusal ? (error.status === 401 ? UNKNOWN : error.message) : String(error));
      field.select();
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="signin">
      <h1>Jobmeter</h1>
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      <p class="where">
        Sign in to the server at <b>{location.host}</b>.
      </p>
      <p>
        On the machine of the server, <code>jobmeter open</code> opens this page signed in.
      </p>
      <form onSubmit={(event) => void submit(event)}>
        <label for="token">Or enter the token of a key</label>
        <input id="token" name="token" type="password" autocomplete="current-password" required spellcheck={false} />
        <button type="submit" class="primary" disabled={busy}>
          Sign in
        </button>
      </form>
      <p class="hint">
        Create a key with <code>jobmeter key create --name me --role reader</code>. The administrator’s key is in{" "}
        <code>admin.key</code> in the data folder.
      </p>
    </main>
  );
}
