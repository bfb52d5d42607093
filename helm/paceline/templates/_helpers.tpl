{{- define "paceline.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "paceline.fullname" -}}
{{- if contains (include "paceline.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "paceline.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* Labels that select the pods of a role: call it with (dict "root" $ "role" "turns"). */}}
{{- define "paceline.selector" -}}
app.kubernetes.io/name: {{ include "paceline.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{- define "paceline.labels" -}}
{{ include "paceline.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: paceline
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "paceline.image" -}}
{{- $repository := required "image.repository is missing: build worker/Dockerfile and push it to a registry of yours" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end }}

{{- define "paceline.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "paceline.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{/* How long running work may go on after SIGTERM. */}}
{{- define "paceline.grace" -}}
{{- default .Values.settings.modelSeconds .Values.settings.graceSeconds -}}
{{- end }}

{{/* The grace, and more than the eleven seconds by which a worker may outlive it. */}}
{{- define "paceline.terminationGrace" -}}
{{- add (include "paceline.grace" .) 20 -}}
{{- end }}

{{- define "paceline.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "paceline.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Where the record and the broker are. Addresses may be secret; the rest is in the ConfigMap. */}}
{{- define "paceline.addresses" -}}
{{- if .Values.redis.existingSecret.name -}}
- name: PACELINE_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.redis.existingSecret.name }}, key: {{ .Values.redis.existingSecret.key }}}}
{{- else -}}
- name: PACELINE_REDIS_URL
  value: {{ required "redis.url or redis.existingSecret.name is missing: where is the record?" .Values.redis.url | quote }}
{{- end }}
{{- if .Values.broker.existingSecret.name }}
- name: PACELINE_BROKER_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.broker.existingSecret.name }}, key: {{ .Values.broker.existingSecret.key }}}}
{{- else if .Values.broker.url }}
- name: PACELINE_BROKER_URL
  value: {{ .Values.broker.url | quote }}
{{- end }}
{{- end }}

{{/* What calls the model has its key. Pods that run tools alone have not: a tool must not find it. */}}
{{- define "paceline.modelKey" -}}
{{- with .Values.model.existingSecret }}
{{- if .name -}}
- name: ANTHROPIC_API_KEY
  valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .key }}}}
{{- end }}
{{- end }}
{{- end }}

{{/* For the image, tools and settings of yours: a container's `env`, `envFrom` and `volumeMounts`. */}}
{{- define "paceline.yours" -}}
env:
  {{- include "paceline.addresses" .root | nindent 2 }}
  {{- if ne .role "tools" }}
  {{- include "paceline.modelKey" .root | nindent 2 }}
  {{- end }}
  {{- with .root.Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
envFrom:
  - configMapRef: {name: {{ include "paceline.fullname" .root }}}
  {{- with .root.Values.extraEnvFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  {{- with .root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* What every pod has: call it with (dict "root" $ "role" "turns"). The exporter has nothing of yours. */}}
{{- define "paceline.pod" -}}
serviceAccountName: {{ include "paceline.serviceAccount" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- include "paceline.podSecurity" .root | nindent 2 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {sizeLimit: 256Mi}
  {{- if ne .role "exporter" }}
  {{- with .root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- end }}
{{- end }}
