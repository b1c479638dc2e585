// SPDX-License-Identifier: Apache-2.0
//
// The states of one connection, each changed by one transition() of the link, and what may follow what. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice::rpcrdma {

enum class LinkState : std::uint8_t {
  Closed,    ///< no queue pair: waits to be opened
  Open,      ///< Receives posted: serving
  Draining,  ///< ended: waits until everything posted has been flushed
};

/// Of RPC-over-RDMA, and how far it is settled.
enum class VersionState : std::uint8_t {
  AwaitingFirstMessage,  ///< passive side: the client's first message settles it (V2-016)
  Version1,
  AwaitingAnswer,  ///< active side: version 2 is spoken, the server has not confirmed it yet
  Version2,
};

/// What a version 2 end has to send before anything else.
enum class Opening : std::uint8_t {
  Complete,            ///< nothing: everybody may send
  AwaitingProperties,  ///< properties 1 to 5 go first
  AwaitingCall,        ///< the first call goes first, and properties follow (Greeting::Call)
};

/// Which messages need none of the intake of version 2: whole ones without chunks, of a connection that is past its
/// beginning and where nothing waits.
enum class Shortcut : std::uint8_t { None, Replies, CallsAndReplies };

/// Whether somebody who could not send is to be asked again.
enum class Retry : std::uint8_t {
  None,
  OnNotice,   ///< when a credit, room, a control buffer or the end of a continued message has come
  AtTurnEnd,  ///< at the end of this turn
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
inline constexpr std::array<std::uint8_t, 3> kAfterOpening{
    any_of(Opening::AwaitingProperties),  // Complete: a server, by the client's first message
    any_of(Opening::Complete),            // AwaitingProperties
    any_of(Opening::Complete, Opening::AwaitingProperties),  // AwaitingCall
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
constexpr bool may_follow(Opening from, Opening to) noexcept {
  return detail::follows(detail::kAfterOpening, static_cast<std::uint8_t>(from),
                         static_cast<std::uint8_t>(to));
}

}  // namespace sluice::rpcrdma
