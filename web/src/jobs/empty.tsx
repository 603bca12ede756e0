/** Explain why the list is empty, and what to do next. */
export function Empty({ narrowed, clear }: { narrowed: boolean; clear: () => void }) {
  if (narrowed) {
    return (
      <div class="empty">
        <h2>No job matches</h2>
        <p>The search covers names and ids, and a job must match every filter. Only jobs that ran while this server was running have findings.</p>
        <button type="button" onClick={clear}>
          Show all jobs
        </button>
      </div>
    );
  }
  return (
    <div class="empty">
      <h2>No jobs yet</h2>
      <p>Run a program as a job, or the demonstration. It appears here within seconds.</p>
      <pre>jobmeter demo{"\n"}jobmeter run -- COMMAND</pre>
      <p>Or import samples from a file, or start an agent that measures a node and the jobs of its scheduler.</p>
      <pre>jobmeter import samples.csv{"\n"}jobmeter agent --server {location.origin} --key TOKEN</pre>
    </div>
  );
}
