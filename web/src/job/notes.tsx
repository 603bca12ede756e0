// Tags and notes of a job: visible to all who see the job, editable with write permission.
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Schemas, BASE, address, queryText, send } from "../api/client";
import type { Mark } from "../charts/axis";
import { isUtc, formatTime, splitTime } from "../format";
import { ownUser } from "../jobs/saved";
import { type ReadState, useAction, useRead } from "../parts/hooks";
import { memo } from "../parts/memo";
import { Moment, Problem } from "../parts/elements";
import { href } from "../router";

type Annotations = Schemas["Annotations"];
type Note = Schemas["JobNote"];
interface Ref {
  id: string;
  project: string;
}
/** Number of notes shown before a click: the newest. */
const SHOWN = 3;
const LONGEST_TAG = 64;
const LONGEST_NOTE = 4000;

export function useAnnotations(job: Ref, ready: boolean): ReadState<Annotations> & { marks: readonly Mark[] } {
  const asked = useRead<Annotations>(ready ? address("/api/jobmeter/v1/jobs/{job}/annotations", { job: job.id }, { project: job.project }) : null);
  const marks = useMemo(() => (asked.data?.notes ?? []).flatMap((note) => markOf(note) ?? []), [asked.data]);
  return { ...asked, marks };
}

/** Return the mark of a note on the time axis; null for a note about the whole job. */
const markOf = (note: Note): Mark | null => (note.time === null ? null : { start: note.time, end: note.time, level: "info", text: note.text, key: note.id, flag: true });

export const Notes = memo(function Notes(given: {
  job: Ref;
  found: Annotations | null;
  reload: () => void;
  writer: boolean;
  guest: boolean;
  chosen: Mark | null;
  choose: (mark: Mark | null) => void;
  /** Default time of a new note. */
  proposed: number;
}) {
  const { job, found, writer, guest, chosen, choose } = given;
  const [writing, setWriting] = useState(false);
  const [all, setAll] = useState(false);
  const { busy, error, perform } = useAction();
  if (!found && writer) return <section class="notes" aria-label="Tags and notes"><div class="line" /></section>;
  if (!found || (!writer && !found.tags.length && !found.notes.length)) return null;
  const write = async (method: "POST" | "DELETE", path: string, body?: object): Promise<boolean> => {
    const url = `${BASE}/jobs/${encodeURIComponent(job.id)}/${path}?${queryText({ project: job.project })}`;
    const done = await perform(() => send(method, url, body && { ...body, author: ownUser() }));
    if (done) given.reload();
    return done;
  };
  const notes = all ? found.notes : found.notes.slice(-SHOWN);
  return (
    <section class="notes" aria-label="Tags and notes">
      <div class="line">
        <ul class="tags" aria-label="Tags">
          {found.tags.map(({ tag, author, by }) => (
            <li key={tag} title={author || by ? `Added by ${author || by}` : undefined}>
              {guest ? tag : <a href={href([], { tag })}>{tag}</a>}
              {writer && (
                <button type="button" class="link" disabled={busy} aria-label={`Remove tag ${tag}`} onClick={() => void write("POST", "tags", { remove: [tag] })}>
                  ×
                </button>
              )}
            </li>
          ))}
        </ul>
        {writer && <NewTag busy={busy} add={(tag) => write("POST", "tags", { add: [tag] })} />}
        {writer && !writing && (
          <button type="button" onClick={() => setWriting(true)}>
            Write a note
          </button>
        )}
      </div>
      {error && <Problem error={error} />}
      {writing && <NewNote proposed={given.proposed} busy={busy} close={() => setWriting(false)} write={(note) => write("POST", "notes", note)} />}
      {found.notes.length > notes.length && (
        <button type="button" class="link" onClick={() => setAll(true)}>
          {found.notes.length - notes.length} earlier notes
        </button>
      )}
      <ul class="written" aria-label="Notes">
        {notes.map((note) => {
          const mark = markOf(note);
          const same = chosen?.key === note.id;
          return (
            <li key={note.id}>
              {mark && (
                <button type="button" class="link" aria-pressed={same} title="Mark this moment" onClick={() => choose(same ? null : mark)}>
                  <Moment ms={mark.start} short />
                </button>
              )}
              <span class="text">{note.text}</span>
              <span class="hint">
                {(note.author || note.by) && `${note.author || note.by}, `}
                <Moment ms={note.created} short />
              </span>
              {writer && (
                <button type="button" class="link" disabled={busy} aria-label={`Delete the note: ${note.text.slice(0, 60)}`} onClick={() => void write("DELETE", `notes/${encodeURIComponent(note.id)}`)}>
                  Delete
                </button>
              )}
            </li>
          );
        })}
      </ul>
    </section>
  );
});

function NewTag({ busy, add }: { busy: boolean; add: (tag: string) => Promise<boolean> }) {
  const [text, setText] = useState("");
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim()) void add(text.trim()).then((done) => done && setText(""));
      }}
    >
      <input type="text" aria-label="New tag" placeholder="Add a tag" size={12} maxLength={LONGEST_TAG} value={text} disabled={busy} onInput={(event) => setText(event.currentTarget.value)} />
    </form>
  );
}

function NewNote(given: { proposed: number; busy: boolean; close: () => void; write: (note: { text: string; time: number | null }) => Promise<boolean> }) {
  const [text, setText] = useState("");
  const [about, setAbout] = useState<"moment" | "job">("moment");
  const [time, setTime] = useState(() => toField(given.proposed));
  // A newly chosen mark changes the default time.
  useEffect(() => setTime(toField(given.proposed)), [given.proposed]);
  const at = fromField(time);
  const valid = text.trim() !== "" && (about === "job" || at !== null);
  return (
    <form
      class="note"
      onSubmit={(event) => {
        event.preventDefault();
        if (valid) void given.write({ text: text.trim(), time: about === "job" ? null : at }).then((done) => done && given.close());
      }}
      onKeyDown={(event) => event.key === "Escape" && given.close()}
    >
      <textarea aria-label="Note" rows={2} maxLength={LONGEST_NOTE} value={text} autoFocus onInput={(event) => setText(event.currentTarget.value)} />
      <div class="line">
        <select aria-label="Subject of the note" value={about} onChange={(event) => setAbout(event.currentTarget.value as "moment" | "job")}>
          <option value="moment">About a moment</option>
          <option value="job">About the whole job</option>
        </select>
        {about === "moment" && <input type="datetime-local" step={1} aria-label={`Moment, ${isUtc() ? "UTC" : "local time"}`} value={time} onInput={(event) => setTime(event.currentTarget.value)} />}
        <button type="submit" class="primary" disabled={given.busy || !valid}>
          Save
        </button>
        <button type="button" onClick={given.close}>
          Cancel
        </button>
        {about === "moment" && <span class="hint">{at === null ? "Enter a time." : `Marked on every chart at ${formatTime(at)}.`}</span>}
      </div>
    </form>
  );
}

/** Format a time for an `input type=datetime-local` in the chosen zone. */
function toField(ms: number): string {
  const { day, time } = splitTime(ms);
  return `${day}T${time}`;
}

/** Parse the value of that input; null if empty. */
function fromField(text: string): number | null {
  const ms = Date.parse(isUtc() ? `${text}Z` : text);
  return Number.isNaN(ms) ? null : ms;
}
