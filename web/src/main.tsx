import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Schemas, BASE, Refusal, change, onSignedOut, read } from "./api/client";
import { JobPage } from "./job/page";
import { JobList } from "./jobs/list";
import { NodesPage } from "./nodes/page";
import { read as kept } from "./format";
import { Frame } from "./parts/frame";
import { Notice } from "./parts/small";
import { go, href, place, usePlace } from "./router";
import { SignIn } from "./signin";
import "./theme.css";

type Who = Schemas["WhoAmI"];

function Page() {
  const [who, setWho] = useState<Who | null>(null);
  const [reason, setReason] = useState<string | null>(null);
  const here = usePlace();
  useEffect(() => {
    void enter(setWho, setReason);
    return onSignedOut(() => {
      setWho(null);
      setReason((last) => last ?? "");
    });
  }, []);
  if (who) {
    return (
      <Frame who={who} place={here} leave={() => void leave(() => setWho(null), () => setReason(""))}>
        {view(here.path, here.query)}
      </Frame>
    );
  }
  if (reason === null) return null;
  return <SignIn reason={reason} entered={setWho} />;
}

function view(path: string[], query: URLSearchParams) {
  const [first, second] = path;
  if (first === undefined || (first === "jobs" && second === undefined)) return <JobList query={query} />;
  if (first === "jobs" && second !== undefined) return <JobPage key={`${second} ${query.get("project")}`} id={second} query={query} />;
  if (first === "nodes") return <NodesPage />;
  return (
    <Notice title="There is nothing at this address.">
      <a href="#/">All jobs</a>
    </Notice>
  );
}

/** Sign in by the link's code, where the address has one; then see whose session there is. */
async function enter(setWho: (who: Who) => void, setReason: (reason: string) => void): Promise<void> {
  const here = place();
  let problem = "";
  if (here.path[0] === "open") {
    const code = here.query.get("code") ?? "";
    const job = here.query.get("job");
    const project = here.query.get("project");
    // The code is taken out of the address before anything else can happen to it.
    go(job ? href(["jobs", job], project ? { project } : undefined) : "#/", true);
    try {
      await change("POST", `${BASE}/session`, `Link ${code}`);
    } catch (error) {
      if (error instanceof Refusal) problem = error.message;
    }
  }
  try {
    setWho(await read<Who>(`${BASE}/whoami`));
  } catch (error) {
    setReason(problem || (error instanceof Refusal && error.status !== 401 ? error.message : ""));
  }
}

async function leave(left: () => void, tell: () => void): Promise<void> {
  await change("DELETE", `${BASE}/session`).catch(() => null);
  tell();
  left();
}

const theme = kept("jobmeter-theme");
if (theme) document.documentElement.dataset["theme"] = theme;
render(<Page />, document.getElementById("page")!);
