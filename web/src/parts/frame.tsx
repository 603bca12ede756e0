import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Schemas } from "../api/client";
import { isUtc, setUtc, writeSetting, zoneName } from "../format";
import type { Place } from "../router";
import { isOverdue } from "../api/connection";
import { Keys } from "./keys";
import { isDark, useConnection, useZone } from "./hooks";
import { Moment } from "./elements";

/** Frame of every view: navigation, session, time zone and theme. */
export function Frame(given: { who: Schemas["WhoAmI"]; place: Place; leave: () => void; children: ComponentChildren }) {
  const first = given.place.path[0] ?? "jobs";
  useZone();
  // The comparison belongs to the list of jobs.
  const view = first === "compare" ? "jobs" : first;
  const link = (name: string, to: string, text: string) => (
    <a href={to} aria-current={view === name ? "page" : undefined}>
      {text}
    </a>
  );
  return (
    <>
      <header class="top">
        <a class="mark" href="#/" aria-label={given.who.job ? "Jobmeter: the job" : "Jobmeter: all jobs"}>
          <svg viewBox="0 0 32 32" aria-hidden="true">
            <path d="M3 21h7l3-12 5 16 3-9h8" />
          </svg>
          <span>Jobmeter</span>
        </a>
        {given.who.job ? (
          <span class="guest">
            Shared job, link valid until <Moment ms={given.who.expires} />
          </span>
        ) : (
          <nav aria-label="Views">
            {link("jobs", "#/", "Jobs")}
            {link("findings", "#/findings", "Findings")}
            {link("nodes", "#/nodes", "Nodes")}
            {link("use", "#/use", "Utilization")}
            {link("admin", "#/admin", "Admin")}
          </nav>
        )}
        <div class="who">
          <Keys guest={Boolean(given.who.job)} />
          <button type="button" onClick={() => setUtc(!isUtc())} title="Switch between your time zone and UTC">
            {zoneName()}
          </button>
          <Theme />
          <button type="button" onClick={given.leave} title={given.who.job ? "Close the shared job" : `Signed in with key ${given.who.name} (${given.who.role})`}>
            Sign out
          </button>
        </div>
      </header>
      <Away />
      <main>{given.children}</main>
    </>
  );
}

/** Warn that the server does not answer or that live updates are interrupted, so that values on the page may be old. */
function Away() {
  const { silent, stopped } = useConnection();
  const still = silent === null && stopped !== null && isOverdue(stopped) ? stopped : null;
  const since = silent ?? still;
  useEffect(() => {
    document.body.classList.toggle("still", since !== null);
    return () => document.body.classList.remove("still");
  }, [since === null]);
  if (since === null) return null;
  return (
    <div class="away" role="alert">
      <strong>{silent === null ? "Live updates stopped at " : "The server has not answered since "}</strong>
      <b>
        <Moment ms={since} short />
      </b>
      . This page shows values from then and reconnects automatically.{silent === null ? "" : " If the server is down, start it with jobmeter serve."}
    </div>
  );
}

function Theme() {
  const [dark, setDark] = useState(isDark);
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const update = () => setDark(isDark());
    query.addEventListener("change", update);
    return () => query.removeEventListener("change", update);
  }, []);
  const turn = () => {
    const next = dark ? "light" : "dark";
    document.documentElement.dataset["theme"] = next;
    writeSetting("jobmeter-theme", next);
    setDark(!dark);
    window.dispatchEvent(new Event("jobmeter-theme"));
  };
  return (
    <button type="button" onClick={turn} aria-label={dark ? "Light colours" : "Dark colours"} title={dark ? "Light colours" : "Dark colours"}>
      {dark ? "☀" : "☾"}
    </button>
  );
}
