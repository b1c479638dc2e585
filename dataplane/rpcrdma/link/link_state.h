// SPDX-License-Identifier: Apache-2.0
//
// States of one connection, each changed only by its transition() of the link, and the legal transitions.
// Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice::rpcrdma {

enum class LinkState : std::uint8_t {
  Closed,    ///< no queue pair; may be opened
  Open,      ///< Receives are posted; serving
  Draining,  ///< closed; waits until everything posted has been flushed
};

/// Version of RPC-over-RDMA, and the progress of its negotiation.
enum class VersionState : std::uint8_t {
  AwaitingFirstMessage,  ///< passive side: the client's first message determines the version (V2-016)
  Version1,
  AwaitingAnswer,  ///< active side: speaks version 2, not yet confirmed by the server
  Version2,
};

/// Returns true if this end speaks version 2, confirmed or not.
constexpr bool is_version_2(VersionState version) noexcept {
  return version >= VersionState::AwaitingAnswer;
}

/// Plain messages that may bypass the general path. In version 2 the connection has also finished its opening
/// and has no deferred messages.
enum class Shortcut : std::uint8_t { None, Replies, CallsAndReplies };

/// When waiting senders are retried.
enum class Retry : std::uint8_t {
  None,
  OnNotice,   ///< when a credit, room, a control buffer or the end of a continued message arrives
  AtTurnEnd,  ///< at the end of this loop iteration
};

namespace detail {

template <std::size_t N>
constexpr bool follows(const std::array<std::uint8_t, N>& followers, std::uint8_t from,
                       std::uint8_t to) noexcept {
  return (followers[from] >> to & 1) != 0;
}
template <typename... States>
constexpr std::uint8_t any_of(States... states) noexcept {
  return static_cast<std::uint8_t>(((1u << static_cast<unsigned>(states)) | ... | 0u));
}

inline constexpr std::array<std::uint8_t, 3> kAfterLinkState{
    any_of(LinkState::Open),      // Closed
    any_of(LinkState::Draining),  // Open
    any_of(LinkState::Closed),    // Draining
};
inline constexpr std::array<std::uint8_t, 4> kAfterVersionState{
    any_of(VersionState::Version1, VersionState::Version2),  // AwaitingFirstMessage
    any_of(),                                                // Version1
    any_of(VersionState::Version1, VersionState::Version2),  // AwaitingAnswer
    any_of(),                                                // Version2
};

}  // namespace detail

constexpr bool may_follow(LinkState from, LinkState to) noexcept {
  return detail::follows(detail::kAfterLinkState, static_cast<std::uint8_t>(from),
                         static_cast<std::uint8_t>(to));
}
constexpr bool may_follow(VersionState from, VersionState to) noexcept {
  return detail::follows(detail::kAfterVersionState, static_cast<std::uint8_t>(from),
                         static_cast<std::uint8_t>(to));
}

}  // namespace sluice::rpcrdma
