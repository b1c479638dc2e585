// SPDX-License-Identifier: Apache-2.0
//
// Connection management by librdmacm for queue pairs that are made elsewhere: what a queue pair has to know
// (rdma_init_qp_attr) goes out through a Host, the number of the queue pair comes back by accept() and
// connect(). One thread. Polled: no call waits.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "controlplane/cm/agent.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/setup_error.h"
#include "pmd/queue_pair.h"

namespace sluice::cm {

/// What is known of a connection that is to be.
struct RdmaCmPeer {
  std::string device;  ///< as the kernel calls it
  std::uint8_t device_port = 1;
  rdma::RcAttributes attributes;  ///< complete but for the caller's own retries
  std::vector<std::byte> private_data;
};

struct RdmaCmOptions {
  std::uint8_t traffic_class = 0;
  std::optional<std::uint8_t> service_level;  ///< nothing: what the kernel's priorities say
};

class RdmaCm {
 public:
  /// No call back from within, but for accept(), reject() and ready().
  class Host {
   public:
    virtual ~Host() = default;
    /// Passive: to be answered by accept() or reject(), now or later.
    virtual void on_request(Id id, const RdmaCmPeer& peer) = 0;
    /// Active: the queue pair is to be connected, then ready() called; or disconnect().
    virtual void on_reply(Id id, const RdmaCmPeer& peer) = 0;
    virtual void on_established(Id id) = 0;
    /// The connection has not come about; the id is gone.
    virtual void on_rejected(Id id, const std::string& why) = 0;
    /// The peer has ended it, or its device is going: disconnect() is wanted.
    virtual void on_disconnected(Id id) = 0;
  };

  /// Throws SetupError when this machine has no RDMA.
  RdmaCm(Host& host, const RdmaCmOptions& options);
  ~RdmaCm();
  RdmaCm(const RdmaCm&) = delete;
  RdmaCm& operator=(const RdmaCm&) = delete;

  /// On all addresses of both families. Throws SetupError.
  void listen(std::uint16_t port);
  /// True when there was something.
  bool poll();

  // False, or nothing, when the id is not known, or the kernel refuses.
  std::optional<Id> connect(const PeerAddress& local, const PeerAddress& remote, std::uint16_t port,
                            std::uint32_t queue_pair, std::span<const std::byte> private_data);
  bool accept(Id id, std::uint32_t queue_pair, std::span<const std::byte> private_data);
  void reject(Id id, std::span<const std::byte> private_data);
  bool ready(Id id);
  /// The peer has been heard on the queue pair: its message that it is ready may have been lost.
  void heard(Id id);
  /// Ends the connection; the id is gone.
  void disconnect(Id id);

  /// A device that librdmacm has opened is being taken away. The kernel waits until nobody has it open, and
  /// librdmacm lets go of it only with its process. Makes system calls.
  bool device_goes() const;

  /// The channel that established connections are on: while anybody has it open, the kernel keeps them.
  int kept_channel() const { return kept_->fd; }

  const AgentStatistics& statistics() const { return statistics_; }

 private:
  enum class Stage : std::uint8_t { Requested, Resolving, Connecting, Replied, Accepted, Established };
  struct Entry {
    rdma_cm_id* id = nullptr;
    Stage stage = Stage::Requested;
    bool passive = true;
    std::uint32_t queue_pair = 0;
    std::uint8_t responder_resources = 16;
    std::uint8_t initiator_depth = 16;
    std::vector<std::byte> private_data;
  };
  /// An event without what librdmacm keeps for it.
  struct Event {
    rdma_cm_event_type type{};
    int status = 0;
    rdma_cm_id* id = nullptr;
    rdma_conn_param parameters{};
    std::vector<std::byte> private_data;
  };

  void handle(const Event& event);
  void on_request(const Event& event);
  void on_response(Id id, Entry& entry, const Event& event);
  void fail(Id id, const std::string& why);
  std::optional<RdmaCmPeer> describe(Entry& entry, const Event& event);
  void set_type_of_service(rdma_cm_id* id);
  rdma_conn_param parameters_of(const Entry& entry) const;
  Id next_id();
  void forget(Id id);

  Host& host_;
  const RdmaCmOptions options_;
  bool keep(const Entry& entry);
  bool poll(rdma_event_channel& channel);

  rdma_event_channel* channel_ = nullptr;  ///< of listening, and of connections that are coming about
  rdma_event_channel* kept_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  std::uint32_t next_id_;
  std::map<Id, Entry> entries_;
  std::set<std::string> device_nodes_;  ///< are there as long as their devices are
  AgentStatistics statistics_;
};

}  // namespace sluice::cm
