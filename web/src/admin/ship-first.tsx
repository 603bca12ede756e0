// Instructions for the first log shipper.
const KINDS = [
  ["file", "JSON lines in a folder of the server's machine"],
  ["loki", "Grafana Loki's push API"],
  ["otlp", "OpenTelemetry: OTLP over HTTP, to a collector or a backend"],
  ["s3", "objects in a bucket of S3 or of a compatible store"],
  ["sls", "Alibaba Cloud's Log Service"],
] as const;
const FILE = `[[sink]]
project = "train"
logstore = "lines"
kind = "file"
directory = "/var/log/jobmeter"`;

export function ShipFirst() {
  return (
    <div class="notice">
      <strong>There are no log shippers.</strong>
      <p>A shipper sends every new log line of a resource group's jobs and nodes to another system. The lines also stay in Jobmeter.</p>
      <h3>Kinds of sinks</h3>
      <dl class="kinds">
        {KINDS.map(([kind, text]) => (
          <div key={kind}>
            <dt>
              <code>{kind}</code>
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      <h3>Steps</h3>
      <ol>
        <li>
          The administrator of this server sets where lines may go. Describe the sink in a file such as <code>sinks.toml</code>:
          <pre>{FILE}</pre>
          A sink with an address also needs <code>url</code>, and the file a line <code>allow</code> with the hosts that the server may connect to.
        </li>
        <li>
          Restart the server with that file:
          <pre>JOBMETER_SINKS=sinks.toml jobmeter serve</pre>
        </li>
        <li>
          Name the resource group and the sink in the form above, or in a terminal:
          <pre>jobmeter shippers create GROUP --to train/lines</pre>
        </li>
      </ol>
    </div>
  );
}
