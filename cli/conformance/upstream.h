// SPDX-License-Identifier: Apache-2.0
//
// Upstreams that answer the calls of a client under test: a real server over TCP, or a stub that answers only
// NULL. Single-threaded; used on the thread of the responder.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "cli/conformance/messages.h"

namespace sluice::conformance {

/// The upstream of one connection of the client.
class Upstream {
 public:
  virtual ~Upstream() = default;
  /// Sends a whole RPC message of the client: a call, or a reply in the reverse direction.
  virtual void send(std::span<const std::byte> message) = 0;
  /// Returns the next whole RPC message for the client, if there is one.
  virtual std::optional<Bytes> receive() = 0;
  /// Reports whether the upstream is closed, so that the client's connection has to be closed too.
  virtual bool gone() const { return false; }
};

/// Creates an upstream for each connection of the client. Holds the callable like std::function, without
/// <functional>.
class MakeUpstream {
 public:
  template <typename Make, typename = std::enable_if_t<std::is_invocable_v<const Make&>>>
  MakeUpstream(Make make) : maker_(std::make_shared<Holder<Make>>(std::move(make))) {}
  std::unique_ptr<Upstream> operator()() const { return maker_->make(); }

 private:
  struct Maker {
    virtual ~Maker() = default;
    virtual std::unique_ptr<Upstream> make() const = 0;
  };
  template <typename Make>
  struct Holder final : Maker {
    explicit Holder(Make own) : call(std::move(own)) {}
    std::unique_ptr<Upstream> make() const override { return call(); }
    Make call;
  };
  std::shared_ptr<const Maker> maker_;
};

/// An upstream where NULL succeeds and everything else is unavailable.
class NullUpstream final : public Upstream {
 public:
  void send(std::span<const std::byte> message) override;
  std::optional<Bytes> receive() override;

 private:
  std::deque<Bytes> replies_;
};

/// An RPC server over TCP (RFC 5531, section 11).
class TcpUpstream final : public Upstream {
 public:
  /// Connects to an address such as "127.0.0.1:2049" or "[fe80::1%eth0]:2049". Throws LinkError if it cannot
  /// be reached.
  explicit TcpUpstream(const std::string& address);
  ~TcpUpstream() override;
  void send(std::span<const std::byte> message) override;
  std::optional<Bytes> receive() override;
  bool gone() const override { return gone_; }

 private:
  int socket_ = -1;
  bool gone_ = false;
  Bytes incoming_;
  Bytes record_;  ///< fragments before the last one
};

}  // namespace sluice::conformance
