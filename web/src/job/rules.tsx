// Names of rules in a sentence are replaced by their titles. The API and the filters use the names.
import { useMemo } from "preact/hooks";
import { type Schemas, address } from "../api/client";
import { ruleTitle } from "../catalog";
import { useRead } from "../parts/hooks";

const NAMES = /\b[a-z]+(?:_[a-z]+)+\b|(?<=\b[Ss]ee )[a-z]+\b/g;

/** Return the names of all rules. They are requested only if a text may contain one. */
export function useRules(texts: readonly string[]): ReadonlySet<string> {
  const needed = texts.some((text) => text.search(NAMES) >= 0);
  const response = useRead<Schemas["RuleList"]>(needed ? address("/api/jobmeter/v1/rules") : null);
  return useMemo(() => new Set(response.data?.rules.map((rule) => rule.name) ?? []), [response.data]);
}

/** Sentence with rule titles. A rule that has a finding on this page is a link to it. */
export function Advice(given: { text: string; rules: ReadonlySet<string>; here: ReadonlySet<string>; show: (rule: string) => void }) {
  const { text, rules, here, show } = given;
  const pieces = [];
  let at = 0;
  for (const match of text.matchAll(NAMES)) {
    const [name] = match;
    if (!rules.has(name)) continue;
    pieces.push(text.slice(at, match.index), <Rule key={match.index} name={name} here={here.has(name)} show={show} />);
    at = match.index + name.length;
  }
  pieces.push(text.slice(at));
  return <p>{pieces}</p>;
}

function Rule({ name, here, show }: { name: string; here: boolean; show: (rule: string) => void }) {
  const title = `“${ruleTitle(name)}”`;
  if (!here) return <abbr title={`rule ${name}`}>{title}</abbr>;
  const follow = (event: MouseEvent) => {
    event.preventDefault();
    show(name);
  };
  return (
    <a href={location.hash} title={`rule ${name}`} onClick={follow}>
      {title}
    </a>
  );
}
