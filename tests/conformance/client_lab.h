// SPDX-License-Identifier: Apache-2.0
//
// Our own requester as a client under judgement, and files in memory behind its judge, all in one thread.
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
  /// The RPC reply to a call.
  Bytes reply_to(std::span<const std::byte> message);
  /// A file of this name with the pattern of kFileSeed, one octet less than kFileBytes; its handle.
  Bytes make_file(const std::string& name);

 private:
  service::memory::MemoryService service_;
};

/// Keeps some calls open, of which each reads what others write: GETATTR, READ, WRITE, READDIR, a long LOOKUP; in version 2 in
/// parts too. Connects again when its connection ends.
class OwnClient {
 public:
  OwnClient(std::shared_ptr<rdma::loopback::Fabric> fabric, Bytes root, Bytes file, std::uint32_t version);
  void turn();
  /// What it has learned of the responder's version.
  void forget_versions();

  std::uint64_t completed = 0;
  std::uint64_t refused = 0;  ///< calls that ended without a reply
  std::uint64_t wrong = 0;    ///< READs whose data is not what was written
  bool with_chunks = true;    ///< else GETATTR alone

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

/// Changes a message of the client. How many times it comes; zero: it is lost.
using Spoil = std::function<int(Bytes& message)>;

/// Judge, responder and client.
class JudgedClient {
 public:
  explicit JudgedClient(std::uint32_t version = 1);
  /// Until so many further calls are served, or nothing comes.
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
    int times_ = 1;  ///< that this message comes
  };

  std::shared_ptr<rdma::loopback::Fabric> fabric_;
  std::unique_ptr<rdma::loopback::Loopback> device_;
  MemoryFiles files_;
  OwnClient client_;
  Judge judge_;
  Local responder_;
};

/// Fails for each rule that is broken, and for data that is not what was written. How many rules were kept.
std::size_t rules_kept(JudgedClient& lab);

}  // namespace sluice::conformance
