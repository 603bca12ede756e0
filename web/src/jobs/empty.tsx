/** Explain why the list is empty, and what to do next. */
export function Empty({ narrowed, clear }: { narrowed: boolean; clear: () => void }) {
  if (narrowed) {
    return (
      <div class="empty">
        <h2>No job matches</h2>
        <p>Search looks in names and ids; every filter must hold. Findings are those of jobs that ran while this server did.</p>
        <button type="button" onClick={clear}>
          Show all jobs
        </button>
      </div>
    );
  }
  return (
    <div class="empty">
      <h2>No jobs yet</h2>
      <p>Run a program as a job; it appears here within seconds. The demonstration brings its own program.</p>
      <pre>jobmeter demo{"\n"}jobmeter run -- COMMAND</pre>
      <p>Or import measurements from elsewhere, or measure a node and the jobs of its scheduler.</p>
      <pre>jobmeter import samples.csv{"\n"}jobmeter agent --server {location.origin} --key TOKEN</pre>
    </div>
  );
}
