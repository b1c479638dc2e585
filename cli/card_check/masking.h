// SPDX-License-Identifier: Apache-2.0
//
// Removal of GUIDs, MAC addresses and IP addresses from a report. Each is replaced by a keyed hash, so that
// equal ones remain recognizable within a report. The key is random and not kept: the hash of an IPv4 address
// would otherwise be reversed by trying all of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "controlplane/json/json.h"
#include "dataplane/base/siphash.h"

namespace sluice::card_check {

using Gid = std::array<std::uint8_t, 16>;

/// Returns the text forms of each kind of identity, which occur in names, in sysfs and in messages.
std::vector<std::string> forms_of_gid(const Gid& gid);
std::vector<std::string> forms_of_guid(std::uint64_t guid);
std::vector<std::string> forms_of_mac(std::span<const std::uint8_t, 6> mac);

class Masking {
 public:
  /// Throws SetupError if the system provides no random numbers.
  Masking();

  /// Adds an identity, which has several forms. The caller leaves out zeros, which are no secret.
  void add(std::span<const std::string> forms);
  /// Returns the text with every form of every identity replaced, in any case of letters.
  std::string masked_text(std::string_view text) const;
  /// Masks all strings and keys of a value.
  Json masked(const Json& value) const;

 private:
  struct Form {
    std::string text;  ///< lower case
    std::string replacement;
  };
  HashKey key_{};
  std::vector<Form> forms_;  ///< the longest first
};

}  // namespace sluice::card_check
