{{/*
Labels of every object. A name stands once and has the chart's own value: selectors look for it, and strict readers of YAML refuse
one that stands twice. What an object adds to these, as its component or the cluster's roles that it is a part of, no common label
may be.
*/}}
{{- define "muster.labels" -}}
{{- $own := dict
    "app.kubernetes.io/name" "muster"
    "app.kubernetes.io/instance" .Release.Name
    "app.kubernetes.io/version" .Chart.AppVersion
    "app.kubernetes.io/managed-by" .Release.Service
    "app.kubernetes.io/part-of" "muster"
    "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version) }}
{{- $common := omit (.Values.commonLabels | default dict) "app.kubernetes.io/component"
    "rbac.authorization.k8s.io/aggregate-to-admin"
    "rbac.authorization.k8s.io/aggregate-to-edit"
    "rbac.authorization.k8s.io/aggregate-to-view" }}
{{- mustMergeOverwrite $common $own | toYaml }}
{{- end }}

{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "muster.nodeAgentSelector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node-agent
{{- end }}

{{/*
Selects every worker, whichever job it belongs to (operator/api/make_pod.cpp). Anybody may give a pod the two labels; a job's
uid is the operator's alone to set (admission-policies.yaml).
*/}}
{{- define "muster.workerPods" -}}
matchLabels:
  app.kubernetes.io/component: worker
  app.kubernetes.io/managed-by: muster-operator
matchExpressions:
- {key: muster.dev/job-uid, operator: Exists}
{{- end }}

{{/* An image as the container runtime wants it. Argument: (list image root) */}}
{{- define "muster.image" -}}
{{- $image := index . 0 -}}
{{- $root := index . 1 -}}
{{- $name := ternary (printf "%s/%s" $image.registry $image.repository) $image.repository (ne $image.registry "") -}}
{{- if $image.digest -}}
{{ $name }}@{{ $image.digest }}
{{- else -}}
{{ $name }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "muster.serviceAccount" -}}
{{ .Values.serviceAccount.name | default "muster-operator" }}
{{- end }}

{{- define "muster.masterSecret" -}}
{{ .Values.master.existingSecret | default "muster-master" }}
{{- end }}

{{/* The one watched namespace, or nothing. */}}
{{- define "muster.watchNamespace" -}}
{{- if .Values.watchNamespace -}}
{{ .Values.watchNamespace }}
{{- else if .Values.rbac.namespaced -}}
{{ .Release.Namespace }}
{{- end -}}
{{- end }}

{{/* Begins the names of objects without a namespace: several releases that watch one namespace each live side by side. */}}
{{- define "muster.clusterName" -}}
{{- $watched := include "muster.watchNamespace" . -}}
{{ ternary (printf "muster-%s" $watched) "muster" (ne $watched "") }}
{{- end }}

{{/* Names of the chart's admission policies, which the operator watches, as a list in JSON. */}}
{{- define "muster.policies" -}}
{{- $name := include "muster.clusterName" . -}}
{{- $policies := list (printf "%s-jobs" $name) (printf "%s-pods" $name) -}}
{{- if .Values.nodeAgent.enabled -}}
{{- $policies = append $policies (printf "%s-node-agent" $name) -}}
{{- end -}}
{{ toJson $policies }}
{{- end }}

{{/* The version of scheduling.k8s.io with PodGroups that the cluster serves; empty where it serves none. */}}
{{- define "muster.podGroups" -}}
{{- if .Values.podGroups.enabled }}
{{- if .Capabilities.APIVersions.Has "scheduling.k8s.io/v1beta1/PodGroup" }}v1beta1
{{- else if .Capabilities.APIVersions.Has "scheduling.k8s.io/v1alpha2/PodGroup" }}v1alpha2
{{- end }}
{{- end }}
{{- end }}

{{/* Rights in the namespaces whose jobs are taken care of. */}}
{{- define "muster.watchedRules" -}}
- apiGroups: [muster.dev]
  resources: [trainingjobs]
  verbs: [get, list, watch, delete]   # delete: ttlSecondsAfterFinished
- apiGroups: [muster.dev]
  resources: [trainingjobs/status]
  verbs: [patch]
- apiGroups: [muster.dev]
  resources: [trainingjobs/finalizers]   # owner references that block deletion, where admission asks for the right
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, create]
{{- if include "muster.podGroups" . }}
- apiGroups: [scheduling.k8s.io]
  resources: [workloads, podgroups]   # one a start of a gang; get: what an operator before this one left half done
  verbs: [get, create]
{{- end }}
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]   # where Kueue is installed: why it has not admitted a gang
  verbs: [list, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]   # one an elastic job, saying spec.worker.min
  verbs: [get, create, patch, delete]
{{- if not (include "muster.watchNamespace" .) }}
- apiGroups: [""]
  resources: [persistentvolumeclaims]   # where a claim's volume can be reached; of use to who sees nodes
  verbs: [get, list, watch]
{{- end }}
- apiGroups: [""]
  resources: [events]
  verbs: [get, create, patch]   # get, patch: news that comes again is counted on its event
{{- end }}

{{- define "muster.milliseconds" -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- mul (trimSuffix $unit . | atoi) (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000) $unit) -}}
{{- end }}

{{/* Refuses durations that the operator would refuse at its start, as operator/main_flags.cpp does. */}}
{{- define "muster.checkDurations" -}}
{{- $election := .Values.leaderElection -}}
{{- range list
    (list "resyncPeriod" .Values.resyncPeriod "1s" "24h")
    (list "podStartTimeout" .Values.podStartTimeout "1m" "24h")
    (list "nodeAgent.period" .Values.nodeAgent.period "1s" "24h")
    (list "leaderElection.leaseDuration" $election.leaseDuration "1s" "1h") }}
{{- $is := include "muster.milliseconds" (index . 1) | atoi }}
{{- if or (lt $is (include "muster.milliseconds" (index . 2) | atoi)) (gt $is (include "muster.milliseconds" (index . 3) | atoi)) }}
{{- fail (printf "%s: must be from %s to %s, not %s" (index . 0) (index . 2) (index . 3) (index . 1)) }}
{{- end }}
{{- end }}
{{- $lease := include "muster.milliseconds" $election.leaseDuration | atoi }}
{{- $renewal := include "muster.milliseconds" $election.renewDeadline | atoi }}
{{- $retry := include "muster.milliseconds" $election.retryPeriod | atoi }}
{{- if ne (mod $lease 1000 | int) 0 }}
{{- fail "leaderElection.leaseDuration: must be whole seconds" }}
{{- end }}
{{- if ge $renewal $lease }}
{{- fail "leaderElection.renewDeadline: must be shorter than leaderElection.leaseDuration" }}
{{- end }}
{{- if or (lt $retry 1) (ge (div (mul $retry 6) 5 | int) $renewal) }}
{{- fail "leaderElection.retryPeriod: must be over 0 and 1.2 times shorter than leaderElection.renewDeadline" }}
{{- end }}
{{- end }}
