// What a token says of itself, before anybody has proved it: good for deciding in which line it
// waits to be reviewed, and for nothing else.
#pragma once

#include <string>
#include <string_view>

namespace muster::runtime {

/// The uid of the pod that a service account's token (a JSON Web Token of Kubernetes) claims to be
/// bound to. Empty: it claims none, or is no such token. Whoever made it up may have put anything
/// there.
std::string claimed_pod_uid(std::string_view token);

}  // namespace muster::runtime
