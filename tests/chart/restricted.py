"""Pod Security `restricted` of Kubernetes 1.30 as a check of a pod's spec, written from its documentation.

Only what a chart can get wrong is looked at; fields that do not stand in a spec are as Kubernetes defaults them.
"""

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
SECCOMP = {"RuntimeDefault", "Localhost"}


def findings(spec):
    """Sentences, none when the spec may run under `restricted`."""
    found = [f"spec.{field} is set" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    for volume in spec.get("volumes", []):
        kinds = set(volume) - {"name"}
        if not kinds <= VOLUMES:
            found.append(f"volume {volume['name']}: {', '.join(sorted(kinds - VOLUMES))}")
    pod = spec.get("securityContext", {})
    if pod.get("sysctls"):
        found.append("sysctls")
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        found += [f"container {container['name']}: {text}" for text in container_findings(container, pod)]
    return found


def container_findings(container, pod):
    own = container.get("securityContext", {})

    def effective(field):
        return own.get(field, pod.get(field))

    if own.get("privileged"):
        yield "privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if "ALL" not in own.get("capabilities", {}).get("drop", []):
        yield "does not drop ALL capabilities"
    if set(own.get("capabilities", {}).get("add", [])) - {"NET_BIND_SERVICE"}:
        yield "adds capabilities"
    if effective("runAsNonRoot") is not True:
        yield "runAsNonRoot is not true"
    if effective("runAsUser") == 0:
        yield "runAsUser is 0"
    if (effective("seccompProfile") or {}).get("type") not in SECCOMP:
        yield "no seccompProfile"
    if own.get("procMount", "Default") != "Default":
        yield "procMount"
    if any(port.get("hostPort") for port in container.get("ports", [])):
        yield "hostPort"
    if own.get("readOnlyRootFilesystem") is not True:   # not of `restricted`, but of this house
        yield "the root is writable"
