import { useState } from "preact/hooks";

/** A button that asks once more before it does what cannot be undone. */
export function Confirm({ text, name, sure, act }: { text: string; name: string; sure: string; act: () => void }) {
  const [asked, setAsked] = useState(false);
  if (!asked) {
    return (
      <button type="button" aria-label={`${text} ${name}`} onClick={() => setAsked(true)}>
        {text}
      </button>
    );
  }
  return (
    <span class="sure">
      <button
        type="button"
        class="danger"
        ref={(node) => node?.focus()}
        onClick={() => {
          setAsked(false);
          act();
        }}
      >
        {sure}
      </button>
      <button type="button" onClick={() => setAsked(false)}>
        No
      </button>
    </span>
  );
}
