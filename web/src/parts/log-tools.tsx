// Toolbar of a log: search, minimum level, follow.
import type { ComponentChildren } from "preact";

/** Fields of the search language, as in `jobmeter.model.log_fields`. */
const FIELDS = "text|time|time_ns|level|severity|facility|tag|stream|path|node|job|replica|attempt|msg|message|syslogtag|source|tagpath|nodeid|hostname";
const LANGUAGE = new RegExp(`\\w[*?]\\w|\\w\\*|\\*\\w|^\\*$|\\S\\s*\\|\\s*\\S|"[^"]+"|(^|\\s)(AND|OR|NOT)\\s|(^|[\\s(])(${FIELDS})\\s*([:=]|[<>!]=?)`);

/** Return the API parameters of a search: a query if the text is in the search language, else a plain text. */
export const searchOf = (text: string) => (LANGUAGE.test(text) ? { query: text, contains: null } : { query: null, contains: text });

type Given = {
  /** Name of the log in labels, for example `the log`. */
  of: string;
  text: string;
  level: string;
  setText: (text: string) => void;
  setLevel: (level: string) => void;
  /** Follow button; absent if the log cannot grow. */
  children?: ComponentChildren;
};

export function LogTools({ of, text, level, setText, setLevel, children }: Given) {
  const search = `Search in ${of}`;
  const forms = 'Text to find, or a query: "page fault", err*, disk | memory, NOT swap, level>=warning, severity<=3, tag:sshd';
  return (
    <>
      <input type="search" aria-label={search} placeholder={search} title={forms} value={text} onInput={(event) => setText(event.currentTarget.value)} spellcheck={false} />
      <select aria-label={`Minimum level of ${of}`} value={level} onChange={(event) => setLevel(event.currentTarget.value)}>
        <option value="">all levels</option>
        <option value="info">info</option>
        <option value="warning">warning</option>
        <option value="error">error</option>
      </select>
      {children}
    </>
  );
}

/** Toggle that follows the newest lines. Pressing it scrolls to the end. */
export function Follow({ following, setFollowing, toEnd }: { following: boolean; setFollowing: (following: boolean) => void; toEnd: () => void }) {
  const act = () => {
    toEnd();
    setFollowing(!following);
  };
  return (
    <button type="button" aria-pressed={following} onClick={act}>
      Follow
    </button>
  );
}
