// SPDX-License-Identifier: Apache-2.0
//
// Connection management through librdmacm for queue pairs of another process. Their attributes
// (rdma_init_qp_attr) are passed to a Host, and the number of the queue pair is passed to accept() and
// connect(). Single-threaded. No call blocks, and identifiers are destroyed by another thread
// (id_destroyer.h).
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "controlplane/cm/connection_state.h"
#include "controlplane/cm/id_destroyer.h"
#include "dataplane/base/net_address.h"
#include "pmd/rc_attributes.h"

namespace sluice::cm {

/// Device and queue pair attributes of a connection that is being established.
struct RdmaCmPeer {
  std::string device;  ///< name of the device in the kernel
  std::uint8_t device_port = 1;
  std::uint16_t port = 0;         ///< passive: requested port
  rdma::RcAttributes attributes;  ///< complete except for the caller's own retries
  std::vector<std::byte> private_data;
};

struct RdmaCmOptions {
  std::uint8_t traffic_class = 0;
  std::optional<std::uint8_t> service_level;  ///< empty to use the kernel's priority mapping
};

class RdmaCm {
 public:
  /// Implemented by the owner. Callbacks may only call accept(), reject() and ready().
  class Host {
   public:
    virtual ~Host() = default;
    /// Passive: a request has arrived. The owner calls accept() or reject(), immediately or later.
    virtual void on_request(Id id, const RdmaCmPeer& peer) = 0;
    /// Passive: a request was rejected, because the kernel returned no attributes for a queue pair.
    virtual void on_refused(const PeerAddress& /*peer*/) {}
    /// Active: a reply has arrived. The owner connects the queue pair and calls ready(), or calls
    /// disconnect().
    virtual void on_reply(Id id, const RdmaCmPeer& peer) = 0;
    virtual void on_established(Id id) = 0;
    /// The connection was not established. The id becomes invalid.
    virtual void on_rejected(Id id, const std::string& why, std::span<const std::byte> private_data) = 0;
    /// The peer has disconnected, or the device is being removed. The owner calls disconnect().
    virtual void on_disconnected(Id id) = 0;
  };

  /// Opens the event channels. Throws SetupError if this machine has no RDMA.
  RdmaCm(Host& host, const RdmaCmOptions& options);
  ~RdmaCm();
  RdmaCm(const RdmaCm&) = delete;
  RdmaCm& operator=(const RdmaCm&) = delete;

  /// Listens on all addresses of both families. Can be called for several ports. Throws SetupError.
  void listen(std::uint16_t port);
  /// Handles pending events. Returns true if there was one.
  bool poll();

  // These functions return false, or no value, if the id is not valid or the kernel refuses.
  std::optional<Id> connect(const PeerAddress& local, const PeerAddress& remote, std::uint16_t port,
                            std::uint32_t queue_pair, std::span<const std::byte> private_data);
  bool accept(Id id, std::uint32_t queue_pair, std::span<const std::byte> private_data);
  void reject(Id id, std::span<const std::byte> private_data);
  bool ready(Id id);
  /// Reports a packet on the queue pair, because the peer's ready-to-use may have been lost.
  void packet_arrived(Id id);
  /// Ends the connection. The id becomes invalid.
  void disconnect(Id id);

  /// Returns true if a device that librdmacm has opened is being removed. The kernel waits until no process
  /// has the device open, and librdmacm closes it only when the process exits. Makes system calls.
  bool device_removed() const;

  /// Returns the channel of established connections. The kernel keeps them while any process has the channel
  /// open.
  int kept_channel() const { return kept_.descriptor(); }

  const AgentStatistics& statistics() const { return statistics_; }
  /// Forwards to IdDestroyer::stuck().
  static constexpr std::uint64_t kLongNs = IdDestroyer::kLongNs;
  std::size_t stuck(std::uint64_t now_ns) { return destroyer_.stuck(now_ns); }

 private:
  /// An event channel. The constructor throws SetupError.
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
    rdma_cm_id* request = nullptr;  ///< new identifier of RDMA_CM_EVENT_CONNECT_REQUEST
    Id id = {};                     ///< identifier of all other events
    rdma_conn_param parameters{};
    std::vector<std::byte> private_data;
  };

  /// Numbers of outstanding RDMA Reads that a device allows for a queue pair.
  struct Depths {
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
  };

  void handle(const Event& event);
  const Depths& depths_of(ibv_context* device);
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

  Channel channel_;  ///< channel of the listener, and of connections being established
  Channel kept_;
  IdDestroyer destroyer_;  ///< declared after the channels, which outlive all identifiers
  std::vector<rdma_cm_id*> listeners_;
  std::uint32_t next_id_;
  std::map<Id, Entry> entries_;
  std::map<ibv_context*, Depths> depths_;  ///< librdmacm never closes a context
  std::set<std::string> device_nodes_;     ///< nodes that exist as long as their devices
  AgentStatistics statistics_;
};

}  // namespace sluice::cm
