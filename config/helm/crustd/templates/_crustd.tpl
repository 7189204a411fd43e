{{/* Each takes a dictionary: root (the release), name (of the DaemonSet), mode, tag, canary (whether it is that). */}}

{{- define "crustd.configuration" -}}
{{- $config := deepCopy .root.Values.config -}}
{{- $listen := dict "listen" (printf "[::]:%v" .root.Values.metrics.port) -}}
{{- $_ := set $config "metrics" (merge (get $config "metrics" | default dict) $listen) -}}
{{- $resize := get $config "resize" | default dict -}}
{{- $_ := set $resize "mode" .mode -}}
{{- $_ := set $config "resize" $resize -}}
{{- if .root.Values.drives.enabled -}}
{{- $prefixes := dict "enabled" "on" "host_prefixes" (join ", " .root.Values.drives.hostPrefixes) -}}
{{- $_ := set $config "drives" (merge $prefixes (get $config "drives" | default dict)) -}}
{{- end -}}
{{- if .root.Values.kubernetes.events -}}
{{- $_ := set $config "kubernetes" (merge (dict "events" "on") (get $config "kubernetes" | default dict)) -}}
{{- end -}}
{{- range $section, $keys := $config }}
[{{ $section }}]
{{- range $key, $value := $keys }}
{{ $key }} = {{ $value }}
{{- end }}
{{ end -}}
{{- end -}}

{{- define "crustd.labels" -}}
app.kubernetes.io/name: {{ .name }}
{{- end -}}

{{- define "crustd.confinement" -}}
seccompProfile:
  {{- toYaml .root.Values.seccompProfile | nindent 2 }}
appArmorProfile:
  type: Unconfined
seLinuxOptions:
  type: spc_t
{{- end -}}

{{- define "crustd.configmap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
data:
  crustd.conf: |
    {{- include "crustd.configuration" . | nindent 4 }}
{{- end -}}

{{- define "crustd.daemonset" -}}
{{- $values := .root.Values -}}
{{- $image := printf "%s:%s" $values.image.repository (.tag | default $values.image.tag | default .root.Chart.AppVersion) -}}
{{- if and $values.image.digest (not .tag) -}}
{{- $image = printf "%s@%s" $values.image.repository $values.image.digest -}}
{{- end -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "crustd.labels" . | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{- include "crustd.labels" . | nindent 6 }}
  updateStrategy:
    {{- toYaml $values.updateStrategy | nindent 4 }}
  template:
    metadata:
      labels:
        {{- include "crustd.labels" . | nindent 8 }}
      annotations:
        # Another configuration is another pod.
        checksum/configuration: {{ include "crustd.configuration" . | sha256sum }}
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      hostPID: true
      hostNetwork: false
      {{- if $values.kubernetes.events }}
      serviceAccountName: crustd
      {{- end }}
      automountServiceAccountToken: {{ $values.kubernetes.events }}
      enableServiceLinks: false
      {{- with $values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if $values.canary.enabled }}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  - key: {{ $values.canary.nodeLabel }}
                    operator: {{ ternary "Exists" "DoesNotExist" .canary }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      priorityClassName: {{ $values.priorityClassName }}
      terminationGracePeriodSeconds: 45
      {{- if $values.crustQemu.enabled }}
      initContainers:
        - name: crust-qemu
          image: {{ $image }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          command: ["/usr/libexec/crustd/crust-qemu-on-node", "install"]
          env:
            - name: CRUST_ROOT
              value: /proc/1/root
          securityContext:
            runAsUser: 0
            readOnlyRootFilesystem: true
            allowPrivilegeEscalation: false
            capabilities:
              drop: ["ALL"]
              add: ["SYS_PTRACE"]
            {{- include "crustd.confinement" . | nindent 12 }}
          resources:
            requests:
              cpu: 10m
              memory: 16Mi
            limits:
              memory: 64Mi
      {{- end }}
      containers:
        - name: crustd
          image: {{ $image }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          command: ["crustd"]
          env:
            - name: CRUST_ROOT
              value: {{ ternary "/host" "/proc/1/root" $values.hostPaths }}
            - name: NODE_NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
          ports:
            - name: metrics
              containerPort: {{ $values.metrics.port }}
              protocol: TCP
          securityContext:
            runAsUser: 0
            readOnlyRootFilesystem: true
            allowPrivilegeEscalation: {{ $values.drives.enabled }}
            {{- if $values.drives.enabled }}
            privileged: true
            {{- end }}
            capabilities:
              drop: ["ALL"]
              add:
                {{- toYaml (concat (list "SYS_PTRACE" "NET_ADMIN" "SYS_CHROOT") $values.extraCapabilities) | nindent 16 }}
            {{- include "crustd.confinement" . | nindent 12 }}
          startupProbe:
            exec:
              command: ["crustctl", "health"]
            periodSeconds: 2
            timeoutSeconds: 5
            failureThreshold: 150
          readinessProbe:
            exec:
              command: ["crustctl", "health"]
            periodSeconds: 15
            timeoutSeconds: 5
          livenessProbe:
            exec:
              command: ["sh", "-c", "crustctl health || [ $? -ne 4 ]"]
            periodSeconds: 30
            timeoutSeconds: 10
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          volumeMounts:
            {{- range $one := include "crustd.paths" . | fromYamlArray }}
            {{- if $values.hostPaths }}
            - name: {{ $one.name }}
              mountPath: /host{{ $one.at }}
              {{- with $one.mount }}
              {{- toYaml . | nindent 14 }}
              {{- end }}
            {{- end }}
            {{- end }}
            - name: configuration
              mountPath: /etc/crustd
              readOnly: true
      volumes:
        {{- range $one := include "crustd.paths" . | fromYamlArray }}
        {{- if $values.hostPaths }}
        - name: {{ $one.name }}
          hostPath:
            path: {{ $one.at }}
            type: {{ $one.type }}
        {{- end }}
        {{- end }}
        - name: configuration
          configMap:
            name: {{ .name }}
{{- end -}}

{{- define "crustd.paths" -}}
- {name: run, at: /run, type: Directory, mount: {mountPropagation: HostToContainer}}
- {name: dev, at: /dev, type: Directory, mount: {readOnly: true}}
- {name: kubelet, at: /var/lib/kubelet, type: Directory, mount: {readOnly: true, mountPropagation: HostToContainer}}
- {name: database, at: /var/lib/crustd, type: DirectoryOrCreate, mount: {}}
- {name: kata-etc, at: /etc/kata-containers, type: DirectoryOrCreate, mount: {readOnly: true}}
- {name: containerd, at: {{ .root.Values.containerdConfiguration }}, type: DirectoryOrCreate, mount: {readOnly: true}}
- {name: crio, at: /etc/crio, type: DirectoryOrCreate, mount: {readOnly: true}}
- {name: kata-opt, at: /opt/kata, type: DirectoryOrCreate, mount: {readOnly: true}}
- {name: usr, at: /usr, type: Directory, mount: {readOnly: true}}
{{- end -}}
