{{- define "jobmeter.labels" -}}
app.kubernetes.io/name: jobmeter
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "jobmeter.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "jobmeter.sender" -}}
{{- if not (or .Values.server.enabled .Values.server.url) }}
{{- fail "server.url is needed where server.enabled is false" }}
{{- end -}}
- name: JOBMETER_SERVER
  value: {{ default (printf "http://%s-server.%s.svc:%v" .Release.Name .Release.Namespace .Values.server.port) .Values.server.url | quote }}
- name: JOBMETER_KEY
  valueFrom:
    secretKeyRef:
      name: {{ .Values.key.secret }}
      key: {{ .Values.key.entry }}
{{- end }}

{{- define "jobmeter.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "jobmeter.claim" -}}
{{- if not .storage.existingClaim }}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .root.Release.Name }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "jobmeter.labels" . | nindent 4 }}
spec:
  accessModes: [ReadWriteOnce]
  {{- with .storage.className }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ .storage.size }}
{{- end }}
{{- end }}
