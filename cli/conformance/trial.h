// SPDX-License-Identifier: Apache-2.0
//
// One test against a server: it sends, looks at what comes back, and says what it wanted instead. Everything that was
// sent and seen is kept for the report. The thread of the link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/conformance/messages.h"
#include "dataplane/rpcrdma/link/private_data.h"

namespace sluice::conformance {

class Link;
struct Received;

/// The server did not do what the requirement asks. what() is a sentence.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The server ended the connection after it had answered with an error: the documents leave that open.
class EndedAfterwards : public Failure {
 public:
  using Failure::Failure;
};

/// The test needs what this server does not offer. what() is a sentence.
class Skipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What there is at the server to work on. Empty handles: nothing.
struct Target {
  Bytes root;        ///< NFS version 3 handle of a folder
  Bytes file;        ///< of a file in it that the tests may write
  std::string name;  ///< of that file
};

struct Limits {
  std::uint64_t answer_ns = 5'000'000'000;  ///< longest wait for an answer
  std::uint64_t quiet_ns = 50'000'000;      ///< wait for messages that must not come
};

class Trial {
 public:
  Trial(Link& link, const Target& at, const Limits& limits, std::uint32_t first_xid)
      : target(at), link_(link), limits_(limits), xid_(first_xid) {}
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  const Target& target;

  /// A fresh connection, of version 1.
  void connect(const std::optional<rpcrdma::PrivateData>& own = {});
  /// A fresh connection whose first message is properties of version 2. Skips when the server does not speak it.
  void connect_v2(const std::optional<rpcrdma::PrivateData>& own = {});
  /// This message makes the connection one of version 2. Skips when the server does not speak it. What answers it,
  /// other than grants and properties, is the next answer().
  void open_v2(std::span<const std::byte> first);

  std::uint32_t next_xid() { return xid_++; }
  void send(std::span<const std::byte> message);
  /// The next message; in version 2 other than grants and properties. Throws EndedAfterwards where the connection is gone
  /// and an error has come before.
  Bytes answer();
  Bytes ask(std::span<const std::byte> message) {
    send(message);
    return answer();
  }
  /// Whatever the credits are, and not shown in the report.
  void send_beyond_credits(std::span<const std::byte> message);
  /// Nothing answers this message, and the server goes on with the next one.
  void expect_silence(std::span<const std::byte> message);
  /// A NULL call is answered.
  void expect_alive();
  /// Waits for the end of the connection.
  bool ends();
  /// Waits a little for what should not come; how many messages came.
  std::size_t overheard();
  /// Waits for so long, or for the end of the connection.
  void wait(std::uint64_t limit_ns);
  bool lost() const;
  /// RFC 8797 private data of the server's answer.
  const std::optional<rpcrdma::PrivateData>& server_data() const;

  Exposed readable(std::size_t bytes, std::uint32_t seed);
  Exposed writable(std::size_t bytes);

  void expect(bool holds, const std::string& wanted) {
    if (!holds) throw Failure("Wanted: " + wanted);
  }
  [[noreturn]] void skip(const std::string& why) { throw Skipped(why); }
  Link& link() { return link_; }
  const std::vector<std::string>& history() const { return history_; }
  /// Whether a message of this connection has come by Send With Invalidate.
  bool invalidated() const;
  std::uint32_t credits_v2() const { return granted_; }
  /// All that came on this connection in version 2, grants and properties too.
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
  std::uint32_t largest_ = 1024;  ///< that the server may send, version 1
  std::uint32_t granted_ = 0;     ///< version 2: credits that are left
  std::size_t read_ = 0;          ///< of the inbox
  bool refused_ = false;          ///< an error has come on this connection
  std::vector<Bytes> heard_;
  std::vector<std::string> history_;
};

}  // namespace sluice::conformance
