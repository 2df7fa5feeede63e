// Codec of metadata and conditions, shared by the kinds. Internal to operator/api.
#pragma once

#include <optional>
#include <string>

#include "common/json.h"
#include "operator/api/object_meta.h"

namespace muster::api {

/// Reads "metadata" of `object`; fields Muster does not use are passed over. Errors: kInvalid.
Status read_meta(const Json& object, ObjectMeta& out);
Json meta_to_json(const ObjectMeta& meta);

/// Namespace and name alone, also of an object that cannot be read; nothing where it has no name.
std::optional<ObjectKey> read_key(const Json& object);

Status read_condition(const Json& json, const std::string& path, Condition& out);
Json condition_to_json(const Condition& condition);

/// Reads an RFC 3339 time where there is one.
void optional_time(JsonReader& in, std::string_view field, std::optional<WallTime>& out);

/// Reads a map of strings to strings. Errors: kInvalid with the key.
Status read_string_map(const Json& json, const std::string& path,
                       std::map<std::string, std::string>& out);

/// Reads "apiVersion" and "kind", which must be those of the kind.
void require_kind(JsonReader& in, Kind kind);

/// {"apiVersion", "kind", "metadata"} of a kind.
Json object_json(Kind kind, const ObjectMeta& meta);

/// Longest condition message written, in bytes.
inline constexpr std::size_t kMaxConditionMessageBytes = 4096;

}  // namespace muster::api
