// SPDX-License-Identifier: Apache-2.0
//
// The seam between Sluice and an RDMA driver: Verbs semantics and names, polled only.
//
// Threads: a Device, its queue pairs and its connection events belong to one reactor; only that thread may
// call them. Registration and creation are setup (they may allocate, block and throw SetupError); everything
// marked noexcept is message path and does none of that.
//
// Ordering (InfiniBand Architecture Specification volume 1, 9.7 and 10.8.3.3, reliable connection):
// - work requests of one queue pair start in the order posted; a Send posted after RDMA Writes is received
//   only after their data is placed;
// - completions of the send queue and of the receive queue each come in posting order;
// - an RDMA Read may complete after later Sends and Writes have started, unless those carry kFence;
// - the first work completion with an error moves the queue pair to State::Error, and everything else that is
//   outstanding on either queue completes with WcStatus::WrFlushError.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace sluice::rdma {

enum class Lkey : std::uint32_t {};
/// Remote key, the steering tag that travels in segment handles.
enum class Rkey : std::uint32_t {};
enum class QueuePairNumber : std::uint32_t {};

/// Setup failed; what() is a sentence for the operator that says what to do.
class SetupError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum Access : std::uint32_t {
  kLocalRead = 0,
  kLocalWrite = 1,
  kRemoteRead = 2,
  kRemoteWrite = 4,
};
using AccessFlags = std::uint32_t;

struct Sge {
  std::byte* address = nullptr;
  std::uint32_t length = 0;
  Lkey lkey{};
};

inline std::uint64_t total_bytes(std::span<const Sge> pieces) noexcept {
  std::uint64_t sum = 0;
  for (const Sge& piece : pieces) sum += piece.length;
  return sum;
}

enum class SendOpcode : std::uint8_t {
  Send,
  SendWithInvalidate,
  RdmaWrite,
  RdmaRead,
  LocalInvalidate,
  SendWithImmediate,       ///< only where DeviceLimits::immediate_data
  RdmaWriteWithImmediate,  ///< the same; consumes a Receive of the peer
};

enum SendFlags : std::uint8_t {
  kSignaled = 1,   ///< ask for a work completion on success; errors complete always
  kFence = 2,      ///< wait for this queue pair's earlier RDMA Reads
  kSolicited = 4,  ///< solicited event for the peer
};

/// The Sge array and nothing else is referenced, and only during post_send(); the memory it names is the
/// driver's until the work completion.
struct SendWr {
  std::uint64_t wr_id = 0;
  std::span<const Sge> sges;
  std::uint64_t remote_address = 0;  ///< RdmaWrite, RdmaRead
  Rkey rkey{};  ///< RdmaWrite, RdmaRead: the peer's; SendWithInvalidate: the peer's handle to
                ///< invalidate; LocalInvalidate: our window's
  SendOpcode opcode = SendOpcode::Send;
  std::uint8_t flags = kSignaled;
  std::uint32_t immediate = 0;  ///< SendWithImmediate, RdmaWriteWithImmediate
};

struct RecvWr {
  std::uint64_t wr_id = 0;
  Sge sge;
};

enum class WcStatus : std::uint8_t {
  Success,
  LocalLengthError,      ///< a Send was longer than the Receive it met (receiver's side)
  LocalProtectionError,  ///< an Sge outside its region, or a region without the access needed
  WrFlushError,          ///< the queue pair went to Error first
  BindError,             ///< a window bind or invalidation that cannot be done
  RemoteInvalidRequest,  ///< the peer refused the request (its Receive was too short, no Read resources)
  RemoteAccessError,     ///< rkey, bounds, access rights or protection domain do not allow the access
  RemoteOperationError,  ///< the peer failed for its own reasons
  RetryExceeded,         ///< the peer does not answer
  RnrRetryExceeded,      ///< receiver-not-ready more often than rnr_retry allows
};
const char* to_string(WcStatus status) noexcept;

enum class WcOpcode : std::uint8_t { Send, RdmaWrite, RdmaRead, LocalInvalidate, BindWindow, Receive };

/// What a request of the send queue completes as.
constexpr WcOpcode completion_opcode(SendOpcode opcode) noexcept {
  switch (opcode) {
    case SendOpcode::Send:
    case SendOpcode::SendWithInvalidate:
    case SendOpcode::SendWithImmediate:
      return WcOpcode::Send;
    case SendOpcode::RdmaWrite:
    case SendOpcode::RdmaWriteWithImmediate:
      return WcOpcode::RdmaWrite;
    case SendOpcode::RdmaRead:
      return WcOpcode::RdmaRead;
    case SendOpcode::LocalInvalidate:
      return WcOpcode::LocalInvalidate;
  }
  return WcOpcode::Send;
}

struct WorkCompletion {
  std::uint64_t wr_id = 0;
  std::uint32_t byte_len = 0;  ///< Receive, RdmaRead: bytes placed. Only valid with Success.
  QueuePairNumber qp{};
  Rkey invalidated{};  ///< Receive with remote_invalidate: the handle the peer invalidated
  WcStatus status = WcStatus::Success;
  WcOpcode opcode = WcOpcode::Send;
  bool remote_invalidate = false;
  bool has_immediate = false;   ///< Receive
  std::uint32_t immediate = 0;  ///< Receive with has_immediate
};

/// A registered range, for local use by its lkey. Remote access is only ever given through a MemoryWindow.
struct MemoryRegion {
  std::span<std::byte> bytes;
  Lkey lkey{};
};

/// A type 2 memory window: exposes a part of a region to the one queue pair it is bound on, until it is
/// invalidated. A queue pair in Error grants no remote access, and destroying it unbinds its windows. The
/// number is the driver's.
struct MemoryWindow {
  std::uint32_t number = 0;
};

/// What connection management agrees on for one side of a queue pair.
struct QueuePairLimits {
  std::uint32_t send_depth = 256;  ///< work requests
  std::uint32_t recv_depth = 256;  ///< work requests
  std::uint32_t max_send_sge = 16;
  std::uint8_t initiator_depth = 16;  ///< RDMA Reads we have outstanding; further ones wait in the queue
  std::uint8_t rnr_retry = 7;         ///< 7 is without end
};

struct DeviceLimits {
  std::uint32_t max_queue_pairs = 0;
  std::uint32_t max_send_sge = 0;
  std::uint32_t max_windows = 0;
  std::uint32_t max_message_bytes = 0;  ///< of one RDMA Read or Write
  std::uint32_t max_send_bytes = 0;     ///< of one Send
  bool immediate_data = false;
  bool remote_invalidation = false;  ///< SendWithInvalidate, and Receives of it
};

/// IPv6 address in network order; IPv4 as ::ffff:a.b.c.d (RFC 4291, section 2.5.5.2).
struct PeerAddress {
  std::array<std::uint8_t, 16> bytes{};

  static constexpr PeerAddress from_ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c,
                                         std::uint8_t d) noexcept {
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}};
  }
  bool operator==(const PeerAddress&) const = default;

  /// Whether the first `bits` bits are those of `prefix`.
  constexpr bool within(const PeerAddress& prefix, std::uint32_t bits) const noexcept {
    for (std::uint32_t bit = 0; bit < bits && bit < 128; ++bit)
      if ((bytes[bit / 8] ^ prefix.bytes[bit / 8]) & (0x80 >> bit % 8)) return false;
    return true;
  }
};

/// Of a device's own addresses, the first of the remote one's family; all zero when there is none.
inline PeerAddress local_for(std::span<const PeerAddress> own, const PeerAddress& remote) noexcept {
  constexpr PeerAddress kV4 = PeerAddress::from_ipv4(0, 0, 0, 0);
  for (const PeerAddress& address : own)
    if (address.within(kV4, 96) == remote.within(kV4, 96)) return address;
  return {};
}

/// Ethernet address of the next hop to a peer.
using LinkAddress = std::array<std::uint8_t, 6>;

/// What connection management has agreed on for a reliable connection, for drivers that leave it to the
/// control plane.
struct RcAttributes {
  PeerAddress local;
  PeerAddress remote;
  LinkAddress remote_link{};
  QueuePairNumber remote_qp{};
  std::uint32_t send_psn = 0;             ///< 24 bits: of our first request
  std::uint32_t receive_psn = 0;          ///< 24 bits: of the peer's first request
  std::uint16_t path_mtu = 1024;          ///< bytes of payload: 256, 512, 1024, 2048 or 4096
  std::uint8_t responder_resources = 16;  ///< RDMA Reads the peer may have outstanding at us
  std::uint8_t initiator_depth = 16;      ///< RDMA Reads we may have outstanding at the peer
  std::uint8_t ack_timeout = 14;          ///< 4.096 us * 2^n without progress until a retry
  std::uint8_t retry_count = 7;           ///< retries without progress until RetryExceeded
  std::uint8_t rnr_retry = 7;             ///< 7 is without end
  std::uint8_t service_level = 0;         ///< 0 to 7; of a VLAN, its priority
  std::uint8_t traffic_class = 0;         ///< of the IP header: DSCP and ECN
};

class QueuePair {
 public:
  enum class State : std::uint8_t {
    Init,         ///< Receives may be posted; waits for connection management
    ReadyToSend,  ///< connected
    Error,        ///< everything outstanding is being flushed
  };

  virtual ~QueuePair() = default;
  virtual QueuePairNumber number() const noexcept = 0;
  virtual State state() const noexcept = 0;

  /// Takes as many from the front as there is room for and returns how many. None in State::Init; in
  /// State::Error they are taken and complete with WrFlushError.
  virtual std::size_t post_send(std::span<const SendWr> wrs) noexcept = 0;
  /// As post_send(), and legal in Init as well.
  virtual std::size_t post_recv(std::span<const RecvWr> wrs) noexcept = 0;
  /// Room for work requests in the send queue.
  virtual std::size_t send_room() const noexcept = 0;

  /// Binds `window` to `bytes` inside the region of `lkey` with remote access, ordered before everything
  /// posted later; it reaches the device with the next post_send() or Device::poll(). Returns the new,
  /// unpredictable rkey, or nothing when the send queue is full. Remote offsets are the virtual addresses
  /// of `bytes`. A window bound already has to be invalidated first (BindError otherwise).
  virtual std::optional<Rkey> bind_window(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey,
                                          AccessFlags access) noexcept = 0;

  /// Moves to State::Error; outstanding work is flushed through poll().
  virtual void to_error() noexcept = 0;

  /// Init to ReadyToSend, for drivers without a connection manager of their own. False when the attributes
  /// cannot be, or the driver has one.
  virtual bool connect(const RcAttributes& attributes) noexcept {
    static_cast<void>(attributes);
    return false;
  }
  /// Whether a message of the peer has arrived: passive connection management may have lost the peer's
  /// ready-to-use message (InfiniBand 12.9.7.2, communication established).
  virtual bool heard_from_peer() const noexcept { return true; }
};

/// Connection management as the driver does it itself (loopback). That of softroce and verbs is done by the
/// control plane: they have none.
enum class CmEventType : std::uint8_t { ConnectRequest, Established, Rejected, Disconnected };

inline constexpr std::size_t kMaxPrivateData = 92;  ///< InfiniBand CM REQ, the smallest of the messages

/// One side's handle of a connection, being set up or established.
enum class CmId : std::uint32_t {};

struct CmEvent {
  CmEventType type = CmEventType::ConnectRequest;
  CmId id{};
  std::uint16_t port = 0;    ///< ConnectRequest
  PeerAddress peer_address;  ///< ConnectRequest
  std::uint8_t private_data_bytes = 0;
  std::byte private_data[kMaxPrivateData]{};
};

class ConnectionManager {
 public:
  virtual ~ConnectionManager() = default;
  virtual void listen(std::uint16_t port) = 0;
  /// Starts a connection for `qp` (in Init, Receives posted); ends in Established or Rejected.
  virtual std::optional<CmId> connect(QueuePair& qp, std::uint16_t port,
                                      std::span<const std::byte> private_data) noexcept = 0;
  /// Answers a ConnectRequest. The queue pair has its Receives posted; it is ReadyToSend on Established.
  virtual bool accept(CmId id, QueuePair& qp, std::span<const std::byte> private_data) noexcept = 0;
  virtual void reject(CmId id, std::span<const std::byte> private_data) noexcept = 0;
  /// Ends a connection; both sides get Disconnected and their queue pairs go to Error.
  virtual void disconnect(CmId id) noexcept = 0;
  /// At most events.size() events; bounded work.
  virtual std::size_t poll_events(std::span<CmEvent> events) noexcept = 0;
};

/// A message of queue pair 1, the general services interface: a management datagram with what is needed to
/// answer it.
struct Datagram {
  static constexpr std::size_t kMaxBytes = 256;
  PeerAddress local;
  PeerAddress remote;
  LinkAddress remote_link{};  ///< of the hop it came from; all zero when sending: the driver resolves it
  std::uint32_t remote_qp = 1;
  std::uint16_t bytes = 0;
  std::array<std::byte, kMaxBytes> data{};
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const noexcept = 0;
  virtual DeviceLimits limits() const noexcept = 0;

  /// Memory suited to the device (page aligned, zeroed), registered for local use. Lives as long as the
  /// device.
  virtual MemoryRegion allocate_memory(std::size_t bytes) = 0;
  /// Registers memory of the caller's for local use; it has to outlive the device.
  virtual MemoryRegion register_memory(std::span<std::byte> bytes) = 0;
  virtual MemoryWindow allocate_window() = 0;

  virtual std::unique_ptr<QueuePair> create_queue_pair(const QueuePairLimits& limits) = 0;
  /// Nothing when the driver leaves connection management to the control plane.
  virtual ConnectionManager* connection_manager() noexcept = 0;

  /// Drivers without a connection manager: management datagrams, in and out. A datagram that cannot be sent
  /// now is lost, as on the wire.
  virtual std::size_t receive_datagrams(std::span<Datagram> datagrams) noexcept {
    static_cast<void>(datagrams);
    return 0;
  }
  virtual bool send_datagram(const Datagram& datagram) noexcept {
    static_cast<void>(datagram);
    return false;
  }
  /// Addresses of the device's own, the first being the default; empty with a connection manager.
  virtual std::span<const PeerAddress> addresses() const noexcept { return {}; }
  /// Largest path MTU that its link carries.
  virtual std::uint16_t max_path_mtu() const noexcept { return 4096; }

  /// The driver's own counters, in the order of its statistics table; how many were written.
  virtual std::size_t read_statistics(std::span<std::uint64_t> values) const noexcept {
    static_cast<void>(values);
    return 0;
  }

  /// Advances all queue pairs of the device by a bounded amount and returns their work completions.
  virtual std::size_t poll(std::span<WorkCompletion> completions) noexcept = 0;

  /// Not message path: gives the processor away for at most `limit_ns`, when the polls since the last wait
  /// have found nothing. May return at once.
  virtual void wait(std::uint64_t limit_ns) noexcept;
  /// Whether wait() ends when there is something for poll().
  virtual bool wakes() const noexcept { return false; }
};

}  // namespace sluice::rdma
