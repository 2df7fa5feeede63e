// Manifests the tests of this module start from.
#pragma once

#include <string>
#include <vector>

#include "common/json.h"

namespace muster::test {

/// The least job of the built-in engine.
Json least_training_job();
/// The least job of an own program.
Json least_program_job();
/// Every field of the built-in engine's job and of the status, set to something that is not its
/// default.
Json full_training_job();
/// Every field of a model that reads text, and the text.
Json gpt_training_job();
Json token_training_job();
Json table_training_job();
Json picture_training_job();
/// Of a model that is split between workers, with groups of these.
Json grouped_training_job();
/// Every field that only an own program has, but for the next one's.
Json full_program_job();
/// In the network of its nodes: its pods are not restricted.
Json host_network_job();
Json free_shape_job();  ///< of an own program

Json least_training_queue();
/// Every field of a queue and of its status, set to something that is not its default.
Json full_training_queue();
Json full_topology_config();
Json least_topology_config();

/// Parses `json` as a TrainingJob; the error's sentence, or "" when it is accepted.
std::string refusal(const Json& json);

/// Whether it names the field and says what would be right.
bool names(const std::string& sentence, const std::string& field, const std::string& cure);

/// A value, as JSON, that a field may not have.
struct WrongField {
  const char* pointer;
  const char* value;
  const char* field;
  const char* cure;
};
/// Checks that each is refused by name, of `base` with one after the other; pointers and fields are
/// those below `pointer` and behind `field`.
void check_refused(const Json& base, const std::string& pointer, const std::string& field,
                   const std::vector<WrongField>& all);

/// `json` with the member at `pointer` ("/spec/worker/count") replaced; JSON null removes it.
Json with(Json json, const std::string& pointer, const Json& value);

}  // namespace muster::test
