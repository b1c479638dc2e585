// SPDX-License-Identifier: Apache-2.0
//
// Our own requester as a client that is judged, and in-memory files behind the judge, all in one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/conformance/judge.h"
#include "cli/conformance/stage.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/service/memory/memory_service.h"
#include "pmd/loopback/loopback.h"

namespace sluice::conformance {

/// Files in memory, without a transport.
class MemoryFiles {
 public:
  explicit MemoryFiles(rdma::Device& device);
  Bytes root() const;
  /// Returns the RPC reply to a call.
  Bytes reply_to(std::span<const std::byte> message);
  /// Creates a file that has the pattern of kFileSeed and is one octet shorter than kFileBytes. Returns its
  /// handle.
  Bytes make_file(const std::string& name);

 private:
  service::memory::MemoryService service_;
};

/// A client that keeps several calls outstanding: GETATTR, READ, WRITE, READDIR, a long LOOKUP; with version
/// 2 also continued calls. Each task reads data that others write. The client reconnects when its connection
/// ends.
class OwnClient {
 public:
  OwnClient(std::shared_ptr<rdma::loopback::Fabric> fabric, Bytes root, Bytes file, std::uint32_t version);
  void turn();
  /// Forgets the recorded versions of the responder.
  void forget_versions();

  std::uint64_t completed = 0;
  std::uint64_t refused = 0;  ///< calls that ended without a reply
  std::uint64_t wrong = 0;    ///< READs that returned other data than was written
  bool with_chunks = true;    ///< false: GETATTR only

 private:
  struct Task {
    OwnClient* client = nullptr;
    rdma::MemoryRegion memory;
    std::uint32_t offset = 0, bytes = 0;  ///< of a READ
    bool read = false;
  };
  void open();
  void start(Task& task);
  void start_write_in_parts(Task& task);
  void submit(Task& task, rpcrdma::Request request);
  void submit_read(Task& task, std::uint32_t offset, std::uint32_t bytes);
  void check_read(Task& task, const rpcrdma::Reply& reply);
  static void on_reply(void* context, const rpcrdma::Reply& reply) noexcept;

  std::unique_ptr<rdma::loopback::Loopback> device_;
  rpcrdma::Engine engine_;
  rpcrdma::Requester requester_;
  const Bytes root_, file_;
  const std::uint32_t version_;
  rpcrdma::Connection* connection_ = nullptr;
  std::optional<rdma::CmId> cm_id_;
  std::vector<Task> tasks_;
  std::vector<Task*> idle_;
  std::uint64_t now_ns_ = 1;
  std::uint32_t next_ = 0;
};

/// Changes a message of the client. Returns how many times the message is delivered; 0 if it is lost.
using Spoil = std::function<int(Bytes& message)>;

/// Judge, responder and client.
class JudgedClient {
 public:
  explicit JudgedClient(std::uint32_t version = 1);
  /// Runs until `calls` further calls are served, or no message arrives.
  void serve(std::uint64_t calls);
  Result provoke(const Provocation& provocation, std::uint64_t patience_ns);
  std::vector<Result> results() const { return judge_.results(true); }
  OwnClient& client() { return client_; }
  Responder& responder() { return responder_; }
  Spoil spoil;

 private:
  class Local final : public Responder {
   public:
    Local(JudgedClient& all, const ResponderConfig& config);

   private:
    void other_side() override { all_.client_.turn(); }
    bool arrives(Bytes& message, int before) override;
    JudgedClient& all_;
    int times_ = 1;  ///< how often the current message is delivered
  };

  std::shared_ptr<rdma::loopback::Fabric> fabric_;
  std::unique_ptr<rdma::loopback::Loopback> device_;
  MemoryFiles files_;
  OwnClient client_;
  Judge judge_;
  Local responder_;
};

/// Fails for each broken rule, and for data that differs from what was written. Returns how many rules were
/// kept.
std::size_t rules_kept(JudgedClient& lab);

}  // namespace sluice::conformance
