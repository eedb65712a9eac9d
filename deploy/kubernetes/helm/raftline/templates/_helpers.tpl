{{- define "raftline.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "raftline.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "raftline.labels" -}}
{{ include "raftline.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "raftline.founders" -}}
{{- $founders := int (default .Values.replicaCount .Values.foundingNodes) -}}
{{- if gt $founders (int .Values.replicaCount) }}{{ fail "foundingNodes is more than replicaCount" }}{{ end -}}
{{- $founders -}}
{{- end }}

{{- /* name=host:port of all nodes that found the cluster */ -}}
{{- define "raftline.peers" -}}
{{- $name := include "raftline.name" . -}}
{{- $peers := list -}}
{{- range $i := until (int (include "raftline.founders" .)) -}}
{{- $peers = append $peers (printf "%s-%d=%s-%d.%s-peers:7000" $name $i $name $i $name) -}}
{{- end -}}
{{- join "," $peers -}}
{{- end }}
