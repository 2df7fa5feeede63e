# The process "kubelet": pods as processes of this machine.
muster_library(kubelet
  SOURCES child_process.cpp pod_log.cpp pod_program.cpp pod_view.cpp process_kubelet.cpp
          watch_thread.cpp
  PUBLIC muster::common muster::api muster::kube)
