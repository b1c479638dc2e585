// SPDX-License-Identifier: Apache-2.0
//
// Connection management by librdmacm for queue pairs that another process makes: their attributes
// (rdma_init_qp_attr) go out through a Host, the number of the queue pair comes back by accept() and
// connect(). One thread. Polled: no call blocks, and identifiers are destroyed by another thread (id_destroyer.h).
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "controlplane/cm/agent_statistics.h"
#include "controlplane/cm/connection_state.h"
#include "controlplane/cm/id_destroyer.h"
#include "dataplane/base/net_address.h"
#include "pmd/rc_attributes.h"

namespace sluice::cm {

/// Device and queue pair attributes of a connection that is being established.
struct RdmaCmPeer {
  std::string device;  ///< as the kernel calls it
  std::uint8_t device_port = 1;
  std::uint16_t port = 0;         ///< passive: the one that was asked for
  rdma::RcAttributes attributes;  ///< complete but for the caller's own retries
  std::vector<std::byte> private_data;
};

struct RdmaCmOptions {
  std::uint8_t traffic_class = 0;
  std::optional<std::uint8_t> service_level;  ///< no value: from the kernel's priority mapping
};

class RdmaCm {
 public:
  /// Implemented by the owner. From within, only accept(), reject() and ready() may be called.
  class Host {
   public:
    virtual ~Host() = default;
    /// Passive: call accept() or reject(), now or later.
    virtual void on_request(Id id, const RdmaCmPeer& peer) = 0;
    /// Passive: a request is rejected, since the kernel gives no attributes for a queue pair.
    virtual void on_refused(const PeerAddress& /*peer*/) {}
    /// Active: connect the queue pair, then call ready(); or call disconnect().
    virtual void on_reply(Id id, const RdmaCmPeer& peer) = 0;
    virtual void on_established(Id id) = 0;
    /// The connection was not established. The id is invalid from here on.
    virtual void on_rejected(Id id, const std::string& why, std::span<const std::byte> private_data) = 0;
    /// The peer has disconnected, or the device is being removed: call disconnect().
    virtual void on_disconnected(Id id) = 0;
  };

  /// Throws SetupError when this machine has no RDMA.
  RdmaCm(Host& host, const RdmaCmOptions& options);
  ~RdmaCm();
  RdmaCm(const RdmaCm&) = delete;
  RdmaCm& operator=(const RdmaCm&) = delete;

  /// On all addresses of both families; for several ports. Throws SetupError.
  void listen(std::uint16_t port);
  /// Handles pending events. True when there was one.
  bool poll();

  // False, or no value, when the id is not valid or the kernel refuses.
  std::optional<Id> connect(const PeerAddress& local, const PeerAddress& remote, std::uint16_t port,
                            std::uint32_t queue_pair, std::span<const std::byte> private_data);
  bool accept(Id id, std::uint32_t queue_pair, std::span<const std::byte> private_data);
  void reject(Id id, std::span<const std::byte> private_data);
  bool ready(Id id);
  /// A packet has arrived on the queue pair: the peer's ready-to-use may have been lost.
  void packet_arrived(Id id);
  /// Ends the connection. The id is invalid from here on.
  void disconnect(Id id);

  /// A device that librdmacm has opened is being removed. The kernel waits until no process has it open, and
  /// librdmacm closes it only when its process ends. Makes system calls.
  bool device_removed() const;

  /// Channel of established connections. The kernel keeps them while any process has it open.
  int kept_channel() const { return kept_.descriptor(); }

  const AgentStatistics& statistics() const { return statistics_; }
  /// As IdDestroyer::stuck().
  static constexpr std::uint64_t kLongNs = IdDestroyer::kLongNs;
  std::size_t stuck(std::uint64_t now_ns) { return destroyer_.stuck(now_ns); }

 private:
  /// Throws SetupError.
  class Channel {
   public:
    Channel();
    ~Channel() { rdma_destroy_event_channel(channel_); }
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;
    rdma_event_channel* get() const { return channel_; }
    int descriptor() const { return channel_->fd; }

   private:
    rdma_event_channel* const channel_;
  };
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
  /// Copy of an event, which librdmacm frees when it is acknowledged.
  struct Event {
    rdma_cm_event_type type{};
    int status = 0;
    rdma_cm_id* request = nullptr;  ///< of RDMA_CM_EVENT_CONNECT_REQUEST: the new one
    Id id = {};                     ///< of the others
    rdma_conn_param parameters{};
    std::vector<std::byte> private_data;
  };

  void handle(const Event& event);
  void on_request(const Event& event);
  void on_response(Id id, Entry& entry, const Event& event);
  void fail(Id id, const std::string& why, std::span<const std::byte> private_data = {});
  std::optional<RdmaCmPeer> describe(Entry& entry, const Event& event);
  void set_type_of_service(rdma_cm_id* id);
  rdma_conn_param parameters_of(const Entry& entry) const;
  Id next_id();
  void erase(Id id);

  Host& host_;
  const RdmaCmOptions options_;
  bool keep(const Entry& entry);
  bool poll(rdma_event_channel& channel);

  Channel channel_;  ///< of the listener, and of connections being established
  Channel kept_;
  IdDestroyer destroyer_;  ///< after the channels, which outlive all identifiers
  std::vector<rdma_cm_id*> listeners_;
  std::uint32_t next_id_;
  std::map<Id, Entry> entries_;
  std::set<std::string> device_nodes_;  ///< exist as long as their devices
  AgentStatistics statistics_;
};

}  // namespace sluice::cm
