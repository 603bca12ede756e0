// Keyboard shortcuts: their list, moving between rows, and the palette.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { go } from "../router";
import { Palette } from "./palette";

const KEYS: readonly (readonly [string, string])[] = [
  ["Ctrl K", "go to a job, a node, a user or a page"],
  ["j  k", "next row, previous row"],
  ["Enter", "open the row"],
  ["/", "search in the list"],
  ["g j", "jobs"],
  ["g f", "findings"],
  ["g n", "nodes"],
  ["g u", "utilization"],
  ["?", "this list"],
  ["Esc", "close the dialog or menu"],
];
const PLACES: Record<string, string> = { j: "#/", f: "#/findings", n: "#/nodes", u: "#/use" };
/** Milliseconds after `g` within which the second key counts. */
const PATIENCE = 1500;

/** Handle the shortcuts. A guest sees one job and cannot navigate. */
export function Keys({ guest }: { guest: boolean }) {
  const [open, setOpen] = useState<"keys" | "palette" | null>(null);
  const before = useRef(0);
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const palette = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k";
      if (palette && !guest) {
        event.preventDefault();
        setOpen("palette");
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTyping(event.target) || document.querySelector("dialog[open]")) return;
      const second = Date.now() - before.current < PATIENCE;
      before.current = event.key === "g" && !second ? Date.now() : 0;
      const place = second && !guest ? PLACES[event.key] : undefined;
      if (place) go(place);
      else if (event.key === "?") setOpen("keys");
      else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [guest]);
  const close = () => setOpen(null);
  return (
    <>
      <button type="button" class="keys" title="Keys ( ? )" aria-label="Keys" onClick={() => setOpen("keys")}>
        ?
      </button>
      {open === "keys" && <KeyList guest={guest} close={close} />}
      {open === "palette" && <Palette close={close} />}
    </>
  );
}

const isTyping = (target: EventTarget | null): boolean => target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]") !== null;

/** Focus the next or previous row, or the first visible one if no row has the focus. */
function step(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("main [data-step]")];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  const inSight = rows.find((row) => row.getBoundingClientRect().top >= 0) ?? rows[0];
  const next = at < 0 ? inSight : rows[at + by];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

/** Modal dialog that closes on Escape and on a click outside. */
export function useDialog(close: () => void) {
  const ref = useRef<HTMLDialogElement>(null);
  const gone = useRef(false);
  // A layout effect runs before the next key press; a later effect would lose the first letters.
  useLayoutEffect(() => {
    const dialog = ref.current;
    const back = document.activeElement;
    dialog?.showModal();
    return () => {
      gone.current = true;
      dialog?.close();
      if (back instanceof HTMLElement) back.focus();
    };
  }, []);
  const onClick = (event: MouseEvent) => {
    if (event.target === ref.current) close();
  };
  // The close event arrives late: another dialog may be open by then.
  return { ref, onClick, onClose: () => gone.current || close() };
}

function KeyList({ guest, close }: { guest: boolean; close: () => void }) {
  const dialog = useDialog(close);
  const keys = guest ? KEYS.filter(([key]) => key !== "Ctrl K" && !key.startsWith("g ")) : KEYS;
  return (
    <dialog class="keylist" aria-label="Keys" {...dialog}>
      <div>
        <h2>Keys</h2>
        <dl>
          {keys.map(([key, text]) => (
            <div key={key}>
              <dt>
                {key.split(/ +/).map((one) => (
                  <kbd key={one}>{one}</kbd>
                ))}
              </dt>
              <dd>{text}</dd>
            </div>
          ))}
        </dl>
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </dialog>
  );
}
