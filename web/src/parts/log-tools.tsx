// What stands over a log: search in it, the least level, and whether its newest lines are followed.
import type { ComponentChildren } from "preact";

/** Fields of the language of log searches: `jobmeter.model.log_fields` names them. */
const FIELDS = "text|time|time_ns|level|severity|facility|tag|stream|path|node|job|replica|attempt|msg|message|syslogtag|source|tagpath|nodeid|hostname";
const LANGUAGE = new RegExp(`\\w[*?]\\w|\\w\\*|\\*\\w|^\\*$|\\S\\s*\\|\\s*\\S|"[^"]+"|(^|\\s)(AND|OR|NOT)\\s|(^|[\\s(])(${FIELDS})\\s*([:=]|[<>!]=?)`);

/** What a text in the box asks for: lines that hold the text, or, where it is written in the language of log searches, what it finds. */
export const searchOf = (text: string) => (LANGUAGE.test(text) ? { query: text, contains: null } : { query: null, contains: text });

type Given = {
  /** What the log is called in labels: `the log`. */
  of: string;
  text: string;
  level: string;
  setText: (text: string) => void;
  setLevel: (level: string) => void;
  /** The button that follows; nothing where the log cannot grow. */
  children?: ComponentChildren;
};

export function LogTools({ of, text, level, setText, setLevel, children }: Given) {
  const search = `Search in ${of}`;
  const forms = 'Text that lines hold; or "page fault", err*, disk | memory, NOT swap, level>=warning, severity<=3, tag:sshd';
  return (
    <>
      <input type="search" aria-label={search} placeholder={search} title={forms} value={text} onInput={(event) => setText(event.currentTarget.value)} spellcheck={false} />
      <select aria-label={`Lowest level of ${of}`} value={level} onChange={(event) => setLevel(event.currentTarget.value)}>
        <option value="">every level</option>
        <option value="info">info</option>
        <option value="warning">warning</option>
        <option value="error">error</option>
      </select>
      {children}
    </>
  );
}

/** A button that is pressed while the newest lines are followed; pressing it goes to the end. */
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
