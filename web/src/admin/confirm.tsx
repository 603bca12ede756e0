import { useState } from "preact/hooks";

/** Button that asks for confirmation before it acts. */
export function Confirm({ text, name, sure, act }: { text: string; name: string; sure: string; act: () => void }) {
  const [confirming, setConfirming] = useState(false);
  if (!confirming) {
    return (
      <button type="button" aria-label={`${text} ${name}`} onClick={() => setConfirming(true)}>
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
          setConfirming(false);
          act();
        }}
      >
        {sure}
      </button>
      <button type="button" onClick={() => setConfirming(false)}>
        Cancel
      </button>
    </span>
  );
}
