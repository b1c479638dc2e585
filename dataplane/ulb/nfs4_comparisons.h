// SPDX-License-Identifier: Apache-2.0
//
// VERIFY and NVERIFY (RFC 8881, sections 18.30 and 18.15) behind a gateway that changes attributes. A client
// compares an attribute with the value that GETATTR has returned, but the server compares it with its own
// value. The gateway therefore replaces the client's value by the server's value, in place. No byte moves,
// and no state is kept per call.
//
// The gateway uses the values that the server has announced last. If the server's file systems have different
// values above the limits of the gateway, a comparison may use the value of another file system. Only the
// owning reactor may call.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/service/api/binding.h"
#include "dataplane/ulb/nfs4_attributes.h"
#include "dataplane/ulb/nfs4_values.h"

namespace sluice::ulb {

class ComparedAttributes {
 public:
  ComparedAttributes(const service::CarriedSizes& carried, const service::Withheld& withheld) noexcept
      : carried_bytes_(carried.data_bytes), withheld_(withheld_attributes(withheld)) {}

  /// Records the values that results announce, before the gateway changes them. `placed` is used as in
  /// Binding::result_items.
  void note(const service::Binding& binding, std::span<const std::byte> results,
            service::PlacedResults* placed) noexcept;
  /// Replaces the attributes that a call compares, which are values shown to clients, by the values of the
  /// server. Called once per call.
  void restore(const service::Binding& binding, std::uint32_t procedure,
               std::span<std::byte> arguments) const noexcept;
  /// Sets what is withheld from clients. What the server has announced of it is recorded anew.
  void withhold(const service::Withheld& withheld) noexcept {
    withheld_ = withheld_attributes(withheld);
    announced_.hidden = {};
  }
  /// Discards the recorded values, because another server has replaced this one.
  void forget() noexcept { announced_ = {}; }

 private:
  struct Announced {
    std::uint64_t max_read = 0;   ///< bytes; zero if unknown or not above carried_bytes_
    std::uint64_t max_write = 0;  ///< bytes; zero if unknown or not above carried_bytes_
    /// Supported attributes that are withheld, of NFS 4.0 and of later minor versions.
    std::array<Attributes, 2> hidden{};
  };
  void note_fattr(ValueReader& in) noexcept;
  void note_supported(std::span<const std::byte> values, ValueReader& in) noexcept;
  void note_size(ValueReader& in, std::uint64_t& announced) const noexcept;
  void restore_fattr(std::span<std::byte> fattr, bool later_version) const noexcept;
  void restore_supported(std::span<std::byte> values, ValueReader& in, bool later_version) const noexcept;
  void restore_size(std::span<std::byte> values, ValueReader& in, std::uint64_t announced) const noexcept;

  const std::uint64_t carried_bytes_;  ///< maximum data of one READ or WRITE that the gateway carries
  Attributes withheld_;
  Announced announced_;
};

}  // namespace sluice::ulb
