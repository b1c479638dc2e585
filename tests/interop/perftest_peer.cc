// SPDX-License-Identifier: Apache-2.0
//
// The server side of perftest's programs over softroce. Their clients on the kernel's verbs test our Sends
// and our answers to RDMA Reads and Writes, with many requests outstanding.
//
// perftest exchanges parameters over TCP, and each message of the client is answered by a message of equal
// length. The first message holds version and limits. The next ones hold the key of each side (queue pair,
// packet sequence number, rkey, address, GID, in text) and are exchanged several times. After the test the
// bandwidth programs may compare numbers, and "done" or the end of the connection follows. The number of keys
// depends on the release.
//
//  perftest_peer send_lat|read_bw|write_bw ETHDEV ADDRESS/BITS PEER-ADDRESS PEER-MAC BYTES
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/bench/client.h"
#include "cli/bench/device.h"
#include "tests/interop/until.h"

namespace sluice::interop {
namespace {

constexpr std::uint16_t kPort = 18515;
constexpr std::uint32_t kReceives = 64;
constexpr std::uint32_t kOwnPsn = 0xFFFFF8;  // about to wrap
constexpr std::size_t kOwnBytes = 4096;      // perftest uses at least a page
constexpr std::uint8_t kAckTimeout = 20;     // 4.3 s: an emulated guest may not run for a second

struct Program {
  const char* name;
  rdma::AccessFlags access;
};
constexpr Program kPrograms[] = {
    {"send_lat", 0}, {"read_bw", rdma::kRemoteRead}, {"write_bw", rdma::kRemoteWrite}};
constexpr char kDone[] = "done";  // sent with its zero

/// Parameters that each side sends.
struct Key {
  unsigned lid = 0;
  unsigned reads = 1;
  unsigned queue_pair = 0;
  unsigned psn = 0;
  unsigned rkey = 0;
  unsigned long long address = 0;
  PeerAddress gid;

  static constexpr std::size_t kBytes = 108;
  std::string text() const {
    std::array<char, kBytes> out{};
    int at = std::snprintf(out.data(), out.size(), "%04x:%04x:%06x:%06x:%08x:%016llx:", lid, reads,
                           queue_pair, psn, rkey, address);
    for (const std::uint8_t byte : gid.bytes)
      at += std::snprintf(out.data() + at, out.size() - static_cast<std::size_t>(at), "%02x:", byte);
    std::snprintf(out.data() + at, out.size() - static_cast<std::size_t>(at), "%08x:", 0u);
    return {out.data(), out.size()};
  }
  static Key parse(const std::string& text) {
    Key key;
    int at = 0;
    if (std::sscanf(text.c_str(), "%x:%x:%x:%x:%x:%llx:%n", &key.lid, &key.reads, &key.queue_pair, &key.psn,
                    &key.rkey, &key.address, &at) != 6)
      throw std::runtime_error("no key: " + text);
    for (std::uint8_t& byte : key.gid.bytes) {
      byte = static_cast<std::uint8_t>(std::stoul(text.substr(static_cast<std::size_t>(at), 2), nullptr, 16));
      at += 3;
    }
    return key;
  }
};

class Peer {
 public:
  Peer(bench::ToolDevice& tool, const Program& program, const LinkAddress& link, std::uint32_t bytes)
      : device_(*tool.device),
        program_(program),
        link_(link),
        bytes_(bytes),
        data_(device_.allocate_memory((kReceives + 1) * std::max<std::size_t>(bytes, kOwnBytes))),
        window_(device_.allocate_window()),
        qp_(device_.create_queue_pair({})) {
    own_.gid = device_.addresses()[0];
    own_.queue_pair = static_cast<unsigned>(qp_->number());
    own_.psn = kOwnPsn;
    for (std::uint64_t i = 0; i < kReceives; ++i) post_receive(i);
  }
  ~Peer() {
    if (socket_ >= 0) ::close(socket_);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void serve() {
    accept();
    constexpr std::size_t kVersionBytes = 16;
    echo(kVersionBytes);
    const std::string mtu = echo(sizeof(std::uint32_t));
    std::uint32_t path_mtu = 0;
    std::memcpy(&path_mtu, mtu.data(), sizeof path_mtu);
    echo(sizeof(std::uint32_t));
    echo(sizeof(std::uint16_t));
    connect(Key::parse(read(Key::kBytes)), static_cast<std::uint16_t>(ntohl(path_mtu)));
    write(own_.text());
    while (answer_next()) {
    }
  }
  std::uint64_t messages() const { return messages_; }
  bool was_written() const {
    const auto window = exposed();
    return std::any_of(window.begin(), window.end(), [](std::byte b) { return b != std::byte{0}; });
  }

 private:
  /// Answers the next message of the client. Returns false at the end.
  bool answer_next() {
    const std::string begun = read(sizeof kDone, true);
    if (begun.empty()) return false;
    const bool is_key = begun[0] == '0';  // no number begins with a 0
    const bool is_done = begun == std::string(kDone, sizeof kDone);
    const std::size_t bytes = is_key ? Key::kBytes : is_done ? sizeof kDone : sizeof(std::uint64_t);
    const std::string text = begun + read(bytes - begun.size());
    write(is_key ? own_.text() : text);
    return !is_done;
  }

  std::span<std::byte> slot(std::uint64_t number) const {
    const std::size_t size = std::max<std::size_t>(bytes_, kOwnBytes);
    return data_.bytes.subspan(number * size, size);
  }
  std::span<std::byte> exposed() const { return slot(kReceives); }

  void connect(const Key& peer, std::uint16_t path_mtu) {
    const bool connected = qp_->connect({.local = own_.gid,
                                         .remote = peer.gid,
                                         .remote_link = link_,
                                         .remote_qp = static_cast<rdma::QueuePairNumber>(peer.queue_pair),
                                         .send_psn = kOwnPsn,
                                         .receive_psn = peer.psn,
                                         .path_mtu = path_mtu,
                                         .ack_timeout = kAckTimeout});
    while (connected && qp_->state() == rdma::QueuePair::State::Init) device_.poll({});
    if (!connected) throw std::runtime_error("the queue pair refuses the parameters of the client");
    own_.address = reinterpret_cast<std::uintptr_t>(exposed().data());
    if (program_.access == 0) return;
    const auto rkey = qp_->bind_window(window_, exposed(), data_.lkey, program_.access);
    if (!rkey) throw std::runtime_error("the window cannot be bound");
    own_.rkey = static_cast<unsigned>(*rkey);
  }

  void post_receive(std::uint64_t number) {
    const rdma::RecvWr wr{number, {slot(number).data(), bytes_, data_.lkey}};
    if (qp_->post_recv({&wr, 1}) != 1) throw std::runtime_error("post_recv failed");
  }
  /// Sends each message back unchanged.
  void turn() {
    rdma::WorkCompletion completions[kReceives];
    const std::size_t count = device_.poll(completions);
    for (const rdma::WorkCompletion& wc : std::span(completions, count)) {
      if (wc.status != rdma::WcStatus::Success)
        throw std::runtime_error(std::string("work completion: ") + rdma::to_string(wc.status));
      if (wc.opcode == rdma::WcOpcode::Send) post_receive(wc.wr_id);
      if (wc.opcode != rdma::WcOpcode::Receive) continue;
      ++messages_;
      const rdma::Sge sge{slot(wc.wr_id).data(), wc.byte_len, data_.lkey};
      const rdma::SendWr wr{.wr_id = wc.wr_id, .sges = {&sge, 1}, .opcode = rdma::SendOpcode::Send};
      if (qp_->post_send({&wr, 1}) != 1) throw std::runtime_error("post_send failed");
    }
  }

  // --- TCP. The device is polled while there is nothing to read.
  void accept() {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(kPort);
    if (::bind(listener, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 ||
        ::listen(listener, 1) != 0)
      throw std::runtime_error(std::string("cannot listen: ") + std::strerror(errno));
    std::printf("listening\n");
    std::fflush(stdout);
    until("a client", [&] { return (socket_ = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK)) >= 0; });
    ::close(listener);
  }
  template <typename Condition>
  void until(const char* what, Condition condition) {
    interop::until(
        what, [this] { turn(); }, condition);
  }
  /// Returns this number of bytes. `may_end` allows the end of the connection instead of the first byte.
  std::string read(std::size_t bytes, bool may_end = false) {
    std::string out;
    if (bytes == 0) return out;
    until("data of the client", [&] {
      std::array<char, Key::kBytes> part;
      const ssize_t got = ::recv(socket_, part.data(), bytes - out.size(), 0);
      if (got == 0 && may_end && out.empty()) return true;
      if (got == 0) throw std::runtime_error("the client has closed the connection");
      if (got > 0) out.append(part.data(), static_cast<std::size_t>(got));
      return out.size() == bytes;
    });
    return out;
  }
  void write(const std::string& text) {
    if (::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
      throw std::runtime_error("the client does not receive the answer");
  }
  std::string echo(std::size_t bytes) {
    const std::string text = read(bytes);
    write(text);
    return text;
  }

  rdma::Device& device_;
  const Program& program_;
  const LinkAddress link_;
  const std::uint32_t bytes_;
  rdma::MemoryRegion data_;
  rdma::MemoryWindow window_;
  Owned<rdma::QueuePair> qp_;
  Key own_;
  int socket_ = -1;
  std::uint64_t messages_ = 0;
};

LinkAddress parse_link(const char* text) {
  unsigned bytes[6];
  if (std::sscanf(text, "%x:%x:%x:%x:%x:%x", &bytes[0], &bytes[1], &bytes[2], &bytes[3], &bytes[4],
                  &bytes[5]) != 6)
    throw std::runtime_error(std::string("no Ethernet address: ") + text);
  LinkAddress link;
  std::copy(std::begin(bytes), std::end(bytes), link.begin());
  return link;
}

int run(char** argv) {
  const auto* program = std::find_if(std::begin(kPrograms), std::end(kPrograms),
                                     [&](const Program& p) { return std::string(argv[1]) == p.name; });
  if (program == std::end(kPrograms)) throw std::runtime_error(std::string("no such program: ") + argv[1]);
  bench::DeviceOptions options;
  options.driver = "softroce";
  options.ethdev = argv[2];
  options.address = argv[3];
  options.server = argv[4];
  bench::ToolDevice tool = bench::open_device(options);
  Peer peer(tool, *program, parse_link(argv[5]), static_cast<std::uint32_t>(std::atoi(argv[6])));
  peer.serve();
  std::printf("%s: %llu messages, %s\n", program->name, static_cast<unsigned long long>(peer.messages()),
              peer.was_written() ? "written" : "not written");
  return 0;
}

}  // namespace
}  // namespace sluice::interop

int main(int argc, char** argv) {
  if (argc != 7)
    return std::fprintf(stderr,
                        "usage: perftest_peer send_lat|read_bw|write_bw ETHDEV ADDRESS/BITS PEER "
                        "PEER-MAC BYTES\n"),
           2;
  try {
    return sluice::interop::run(argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "perftest_peer: %s\n", error.what());
    return 1;
  }
}
