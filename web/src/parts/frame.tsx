import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Schemas } from "../api/client";
import { isUtc, setUtc, write, zone } from "../format";
import type { Place } from "../router";
import { isDark, useZone } from "./hooks";

/** What is around every view: where one can go, who is signed in, zone and theme. */
export function Frame(given: { who: Schemas["WhoAmI"]; place: Place; leave: () => void; children: ComponentChildren }) {
  const first = given.place.path[0] ?? "jobs";
  useZone();
  const link = (name: string, to: string, text: string) => (
    <a href={to} aria-current={first === name ? "page" : undefined}>
      {text}
    </a>
  );
  return (
    <>
      <header class="top">
        <a class="mark" href="#/" aria-label="Jobmeter: all jobs">
          <svg viewBox="0 0 32 32" aria-hidden="true">
            <path d="M3 21h7l3-12 5 16 3-9h8" />
          </svg>
          <span>Jobmeter</span>
        </a>
        <nav aria-label="Views">
          {link("jobs", "#/", "Jobs")}
          {link("nodes", "#/nodes", "Nodes")}
        </nav>
        <div class="who">
          <button type="button" onClick={() => setUtc(!isUtc())} title="Times in your zone, or in UTC">
            {zone()}
          </button>
          <Theme />
          <button type="button" onClick={given.leave} title={`Signed in with key ${given.who.name} (${given.who.role})`}>
            Sign out
          </button>
        </div>
      </header>
      <main>{given.children}</main>
    </>
  );
}

function Theme() {
  const [dark, setDark] = useState(isDark);
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const tell = () => setDark(isDark());
    query.addEventListener("change", tell);
    return () => query.removeEventListener("change", tell);
  }, []);
  const turn = () => {
    const next = dark ? "light" : "dark";
    document.documentElement.dataset["theme"] = next;
    write("jobmeter-theme", next);
    setDark(!dark);
    window.dispatchEvent(new Event("jobmeter-theme"));
  };
  return (
    <button type="button" onClick={turn} aria-label={dark ? "Light colours" : "Dark colours"} title={dark ? "Light colours" : "Dark colours"}>
      {dark ? "☀" : "☾"}
    </button>
  );
}
