// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/link_monitor.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::rdma::softroce {
namespace {

/// Size of the receive buffer, larger than any message about one link. The list of virtual functions is the
/// longest part.
constexpr std::size_t kMessageBytes = 32768;

constexpr std::size_t aligned(std::size_t bytes) noexcept {
  return (bytes + NLMSG_ALIGNTO - 1) / NLMSG_ALIGNTO * NLMSG_ALIGNTO;
}
static_assert(NLMSG_ALIGNTO == RTA_ALIGNTO);

/// Reads a structure from the front of `bytes`. Returns nullopt if there are too few bytes.
template <typename T>
std::optional<T> front(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// Calls `visit(type, body)` for each message or attribute. Its header has the length and type.
template <typename Header, typename Visit>
void each_part(std::span<const std::byte> bytes, Visit&& visit) {
  while (const auto header = front<Header>(bytes)) {
    std::size_t length = 0;
    std::uint16_t type = 0;
    if constexpr (requires { header->nlmsg_len; })
      length = header->nlmsg_len, type = header->nlmsg_type;
    else
      length = header->rta_len, type = header->rta_type;
    if (length < aligned(sizeof(Header)) || length > bytes.size()) return;
    visit(type, bytes.subspan(aligned(sizeof(Header)), length - aligned(sizeof(Header))));
    bytes = bytes.subspan(smaller_of(aligned(length), bytes.size()));
  }
}

FileDescriptor open_socket(std::uint32_t groups) {
  FileDescriptor made(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = groups;
  if (!made || ::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw SetupError(std::string("Cannot open a netlink socket (") + std::strerror(errno) +
                     "). Permit AF_NETLINK sockets for the data plane.");
  return made;
}

/// Receives messages from the kernel. Returns the number of bytes, or -1 with errno.
ssize_t receive(int fd, std::span<std::byte> into) noexcept {
  for (;;) {
    sockaddr_nl from{};
    socklen_t from_bytes = sizeof from;
    const ssize_t got =
        ::recvfrom(fd, into.data(), into.size(), 0, reinterpret_cast<sockaddr*>(&from), &from_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 || from.nl_pid == 0) return got;
  }
}

/// Updates `state` from an RTM_NEWLINK message. Attributes that the message lacks are unchanged.
void read_link(const ifinfomsg& link, std::span<const std::byte> attributes, InterfaceState& state) noexcept {
  state.index = static_cast<std::uint32_t>(link.ifi_index);
  state.running = (link.ifi_flags & IFF_UP) != 0 && (link.ifi_flags & IFF_RUNNING) != 0;
  each_part<rtattr>(attributes, [&](std::uint16_t type, std::span<const std::byte> value) {
    if (type == IFLA_MTU)
      state.mtu = front<std::uint32_t>(value).value_or(state.mtu);
    else if (type == IFLA_ADDRESS && value.size() == state.mac.size())
      std::memcpy(state.mac.data(), value.data(), state.mac.size());
  });
}

}  // namespace

LinkMonitor::LinkMonitor(std::string interface)
    : interface_(std::move(interface)), reports_(open_socket(RTMGRP_LINK)), questions_(open_socket(0)) {
  state_ = query(0);
}

InterfaceNews LinkMonitor::poll() noexcept {
  InterfaceNews news;
  bool lost = false;
  while (read_reports(news, lost)) {
  }
  if (lost && state_.index != 0) {
    const InterfaceState found = query(state_.index);
    news.deleted |= found.index == 0;
    news.losses += state_.running && !found.running;
    state_ = found;
  }
  if (state_.index == 0) state_ = query(0);
  news.now = state_;
  return news;
}

bool LinkMonitor::read_reports(InterfaceNews& news, bool& lost) noexcept {
  alignas(nlmsghdr) std::array<std::byte, kMessageBytes> buffer;
  const ssize_t got = receive(reports_.get(), buffer);
  if (got > 0) apply(std::span(buffer).first(static_cast<std::size_t>(got)), news);
  if (got >= 0) return got > 0;
  lost |= errno == ENOBUFS;
  return errno == ENOBUFS;
}

void LinkMonitor::apply(std::span<const std::byte> messages, InterfaceNews& news) noexcept {
  each_part<nlmsghdr>(
      messages, [&](std::uint16_t type, std::span<const std::byte> body) { apply_one(type, body, news); });
}

void LinkMonitor::apply_one(std::uint16_t type, std::span<const std::byte> body,
                            InterfaceNews& news) noexcept {
  const auto link = front<ifinfomsg>(body);
  // A bridge reports that a port has left it with RTM_DELLINK of family AF_BRIDGE.
  if (!link || link->ifi_family != AF_UNSPEC || state_.index == 0 ||
      link->ifi_index != static_cast<int>(state_.index))
    return;
  if (type == RTM_DELLINK) {
    news.deleted = true;
    news.losses += state_.running;
    state_ = {};
  } else if (type == RTM_NEWLINK) {
    const bool was_running = state_.running;
    read_link(*link, body.subspan(aligned(sizeof *link)), state_);
    news.losses += was_running && !state_.running;
  }
}

InterfaceState LinkMonitor::query(std::uint32_t index) noexcept {
  struct {
    nlmsghdr head{};
    ifinfomsg link{};
    rtattr name_head{};
    std::array<char, IFNAMSIZ> name{};
  } question;
  question.head.nlmsg_type = RTM_GETLINK;
  question.head.nlmsg_flags = NLM_F_REQUEST;
  question.link.ifi_family = AF_UNSPEC;
  question.link.ifi_index = static_cast<int>(index);
  question.head.nlmsg_len = sizeof question.head + sizeof question.link;
  if (index == 0) {
    if (interface_.size() >= question.name.size()) return {};
    interface_.copy(question.name.data(), interface_.size());
    question.name_head.rta_type = IFLA_IFNAME;
    question.name_head.rta_len =
        static_cast<std::uint16_t>(sizeof question.name_head + interface_.size() + 1);
    question.head.nlmsg_len += static_cast<std::uint32_t>(aligned(question.name_head.rta_len));
  }
  InterfaceState state;
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  if (::sendto(questions_.get(), &question, question.head.nlmsg_len, 0,
               reinterpret_cast<const sockaddr*>(&kernel), sizeof kernel) < 0)
    return state;
  // The kernel has replied when sendto() returns.
  alignas(nlmsghdr) std::array<std::byte, kMessageBytes> buffer;
  const ssize_t got = receive(questions_.get(), buffer);
  if (got <= 0) return state;
  each_part<nlmsghdr>(std::span<const std::byte>(buffer).first(static_cast<std::size_t>(got)),
                      [&](std::uint16_t type, std::span<const std::byte> body) {
                        const auto link = front<ifinfomsg>(body);
                        if (type == RTM_NEWLINK && link)
                          read_link(*link, body.subspan(aligned(sizeof *link)), state);
                      });
  return state;
}

}  // namespace sluice::rdma::softroce
