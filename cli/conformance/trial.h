// SPDX-License-Identifier: Apache-2.0
//
// One test against a server: it sends messages, checks the responses, and reports what it expected instead.
// All messages are kept for the report. Runs on the thread of the link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/conformance/messages.h"
#include "dataplane/rpcrdma/link/config.h"

namespace sluice::conformance {

class Link;
struct Received;

/// The server did not meet the requirement. what() is a sentence.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The server closed the connection after it had answered with an error. The documents leave that open.
class EndedAfterwards : public Failure {
 public:
  using Failure::Failure;
};

/// The test requires something that this server does not offer. what() is a sentence.
class Skipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Objects at the server for the tests. Empty handles mean that the server offers none.
struct Target {
  Bytes root;        ///< NFS version 3 handle of a folder
  Bytes file;        ///< handle of a file in it that the tests may write
  std::string name;  ///< name of that file
};

struct Limits {
  std::uint64_t answer_ns = 5'000'000'000;  ///< longest wait for a response
  std::uint64_t quiet_ns = 50'000'000;      ///< wait for messages that must not arrive
};

class Trial {
 public:
  Trial(Link& link, const Target& at, const Limits& limits, std::uint32_t first_xid)
      : target(at), link_(link), limits_(limits), xid_(first_xid) {}
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  const Target& target;

  /// Opens a new connection of version 1.
  void connect(const std::optional<rpcrdma::PrivateData>& own = {});
  /// Opens a new connection with properties of version 2 as its first message. Skips the test if the server
  /// does not support version 2.
  void connect_v2(const std::optional<rpcrdma::PrivateData>& own = {});
  /// Begins version 2 on the connection with this message. Skips the test if the server does not support
  /// version 2. The next answer() returns the response, without grants and properties.
  void open_v2(std::span<const std::byte> first);

  std::uint32_t next_xid() { return xid_++; }
  void send(std::span<const std::byte> message);
  /// Returns the next message. In version 2, grants and properties are handled and not returned. Throws
  /// EndedAfterwards if the connection has ended after an error.
  Bytes answer();
  Bytes ask(std::span<const std::byte> message) {
    send(message);
    return answer();
  }
  /// Sends a message regardless of the credits, without showing it in the report.
  void send_beyond_credits(std::span<const std::byte> message);
  /// Checks that this message has no response and that the server continues with the next one.
  void expect_silence(std::span<const std::byte> message);
  /// Checks that a NULL call is answered.
  void expect_alive();
  /// Waits for the end of the connection. Returns whether it has ended.
  bool ends();
  /// Waits a short time for messages that should not arrive. Returns their number.
  std::size_t overheard();
  /// Waits for the given time or for the end of the connection.
  void wait(std::uint64_t limit_ns);
  bool lost() const;
  /// Returns the RFC 8797 private data of the server's reply.
  const std::optional<rpcrdma::PrivateData>& server_data() const;

  Exposed readable(std::size_t bytes, std::uint32_t seed);
  Exposed writable(std::size_t bytes);

  void expect(bool holds, const std::string& wanted) {
    if (!holds) throw Failure("Expected: " + wanted);
  }
  [[noreturn]] void skip(const std::string& why) { throw Skipped(why); }
  Link& link() { return link_; }
  const std::vector<std::string>& history() const { return history_; }
  /// Reports whether a message of this connection was received by Send With Invalidate.
  bool invalidated() const;
  std::uint32_t credits_v2() const { return granted_; }
  /// Returns all messages received on this connection in version 2, including grants and properties.
  const std::vector<Bytes>& heard() const { return heard_; }

 private:
  std::optional<Bytes> next();
  void note(const char* what, std::span<const std::byte> message);
  void check_v1(const Received& received);
  void take(const Bytes& message);
  void take_control();

  Link& link_;
  const Limits limits_;
  std::uint32_t xid_;
  std::uint32_t version_ = 1;
  std::uint32_t largest_ = 1024;  ///< version 1: largest message that the server may send, in octets
  std::uint32_t granted_ = 0;     ///< version 2: number of unused credits
  std::size_t read_ = 0;          ///< number of messages read from the inbox
  bool refused_ = false;          ///< an error was received on this connection
  std::vector<Bytes> heard_;
  std::vector<std::string> history_;
};

}  // namespace sluice::conformance
