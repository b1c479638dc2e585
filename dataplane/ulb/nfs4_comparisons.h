// SPDX-License-Identifier: Apache-2.0
//
// VERIFY and NVERIFY (RFC 8881, sections 18.30 and 18.15) behind a gateway that changes attributes. A client compares
// an attribute with what GETATTR has shown, but the server compares it with its own value. So the gateway replaces the
// client's value by the server's, in place. No byte moves, and no state is kept per call.
//
// The server's values are those that it has announced last. If its file systems differ in them, beyond what the
// gateway carries, a comparison may use the value of another file system. Only the owning reactor may call.
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

  /// Remembers what results announce before the gateway changes them. `placed` as for Binding::result_items.
  void note(const service::Binding& binding, std::span<const std::byte> results,
            service::PlacedResults* placed) noexcept;
  /// Rewrites attributes that a call compares from what clients are shown to what the server has. It is called once per
  /// call.
  void restore(const service::Binding& binding, std::uint32_t procedure,
               std::span<std::byte> arguments) const noexcept;
  /// Forgets what the server has announced: another one has its place.
  void forget() noexcept { announced_ = {}; }

 private:
  struct Announced {
    std::uint64_t max_read = 0;   ///< bytes; zero: not above what the gateway carries, as far as is known
    std::uint64_t max_write = 0;  ///< the same
    /// Supported attributes that are withheld, of NFS 4.0 and of later minor versions.
    std::array<Attributes, 2> hidden{};
  };
  void note_fattr(ValueReader& in) noexcept;
  void note_supported(std::span<const std::byte> values, ValueReader& in) noexcept;
  void note_size(ValueReader& in, std::uint64_t& announced) const noexcept;
  void restore_fattr(std::span<std::byte> fattr, bool later_version) const noexcept;
  void restore_supported(std::span<std::byte> values, ValueReader& in, bool later_version) const noexcept;
  void restore_size(std::span<std::byte> values, ValueReader& in, std::uint64_t announced) const noexcept;

  const std::uint64_t carried_bytes_;  ///< of one READ or WRITE
  const Attributes withheld_;
  Announced announced_;
};

}  // namespace sluice::ulb
