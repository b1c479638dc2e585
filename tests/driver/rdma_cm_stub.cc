// SPDX-License-Identifier: Apache-2.0
//
// Model of librdmacm and of the connection management in the kernel, over the device of verbs_stub.h. Both
// ends are in one process. Messages are delivered immediately and in order. In the product another process
// creates the queue pairs, so the active side gets CONNECT_RESPONSE and calls rdma_establish(). This file
// replaces the library functions that RdmaCm calls. Any thread may call them.
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace {

// Sizes of the private data in bytes, padded with zeros (InfiniBand volume 1, 12.6).
constexpr std::size_t kRequestBytes = 56;
constexpr std::size_t kReplyBytes = 196;
constexpr std::size_t kRejectBytes = 148;
constexpr std::uint32_t kFirstPsn = 0xFFFFF0;  // about to wrap
constexpr int kInvalidServiceId = 8;           // reason of a reject: nobody listens

struct Event : rdma_cm_event {
  std::vector<std::uint8_t> bytes;
};

struct Id : rdma_cm_id {
  enum class State : std::uint8_t {
    Idle,
    Listening,
    Connecting,
    Requested,
    Accepted,
    Replied,
    Connected,
    Ended
  };
  State state = State::Idle;
  Id* peer = nullptr;
  std::uint32_t queue_pair = 0;  ///< QPN of this side
  std::uint32_t psn = 0;         ///< first PSN of this side
  std::uint8_t type_of_service = 0;
  int reported = 0;  ///< events that were returned and not acknowledged
};

struct Channel : rdma_event_channel {
  std::deque<Event*> events;
};

class Kernel {
 public:
  static Kernel& get() {
    // Never destroyed, because threads that end identifiers may outlive the static objects of the process.
    static Kernel& kernel = *new Kernel;
    return kernel;
  }

  rdma_event_channel* make_channel() {
    auto* const made = new Channel;
    made->fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return made;
  }
  void destroy(rdma_event_channel* channel) {
    const std::lock_guard lock(mutex_);
    auto* const gone = static_cast<Channel*>(channel);
    for (const Event* const event : gone->events) delete event;
    ::close(gone->fd);
    delete gone;
  }
  Id* make(rdma_event_channel* channel, void* context) {
    const std::lock_guard lock(mutex_);
    return make_locked(channel, context);
  }
  /// Blocks until all returned events of the identifier are acknowledged.
  void destroy(rdma_cm_id* which) {
    std::unique_lock lock(mutex_);
    auto* const id = static_cast<Id*>(which);
    end(*id);
    std::erase_if(events_of(*id), [&](const Event* event) {
      const bool own = event->id == id;
      if (own) delete event;
      return own;
    });
    acknowledged_.wait(lock, [&] { return id->reported == 0; });
    ids_.erase(id);
    for (Id* const other : ids_)
      if (other->peer == id) other->peer = nullptr;
    delete id;
  }

  int listen(Id& id) {
    const std::lock_guard lock(mutex_);
    id.state = Id::State::Listening;
    return 0;
  }
  int resolve(Id& id, const sockaddr& to) {
    const std::lock_guard lock(mutex_);
    id.verbs = context();
    id.port_num = 1;
    std::memcpy(&id.route.addr.dst_storage, &to,
                to.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    id.route.addr.src_storage = id.route.addr.dst_storage;  // both ends are addresses of this machine
    id.route.addr.src_sin.sin_port = htons(next_port_++);
    add(id, RDMA_CM_EVENT_ADDR_RESOLVED);
    return 0;
  }
  int resolve_route(Id& id) {
    const std::lock_guard lock(mutex_);
    add(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return 0;
  }
  int connect(Id& id, const rdma_conn_param& with) {
    const std::lock_guard lock(mutex_);
    id.state = Id::State::Connecting;
    id.queue_pair = with.qp_num;
    Id* const listener = listener_of(id.route.addr.dst_sin.sin_port);
    if (listener == nullptr) {
      id.state = Id::State::Ended;
      add(id, RDMA_CM_EVENT_REJECTED, nullptr, kRejectBytes, kInvalidServiceId);
      return 0;
    }
    Id* const made = make_locked(listener->channel, listener->context);
    made->state = Id::State::Requested;
    made->verbs = id.verbs;
    made->port_num = id.port_num;
    made->peer = &id;
    made->type_of_service = id.type_of_service;
    made->route.addr.src_storage = id.route.addr.dst_storage;
    made->route.addr.dst_storage = id.route.addr.src_storage;
    id.peer = made;
    add(*made, RDMA_CM_EVENT_CONNECT_REQUEST, &with, kRequestBytes).listen_id = listener;
    return 0;
  }
  int accept(Id& id, const rdma_conn_param& with) {
    const std::lock_guard lock(mutex_);
    if (id.state != Id::State::Requested || id.peer == nullptr) return fail(EINVAL);
    id.state = Id::State::Accepted;
    id.queue_pair = with.qp_num;
    id.peer->state = Id::State::Replied;
    add(*id.peer, RDMA_CM_EVENT_CONNECT_RESPONSE, &with, kReplyBytes);
    return 0;
  }
  int reject(Id& id, const void* bytes, std::uint8_t count) {
    const std::lock_guard lock(mutex_);
    rdma_conn_param with{};
    with.private_data = bytes;
    with.private_data_len = count;
    refuse(id, &with);
    return 0;
  }
  int establish(Id& id) {
    const std::lock_guard lock(mutex_);
    if (id.state != Id::State::Replied || id.peer == nullptr) return fail(EINVAL);
    id.state = id.peer->state = Id::State::Connected;
    add(*id.peer, RDMA_CM_EVENT_ESTABLISHED);
    return 0;
  }
  int disconnect(Id& id) {
    const std::lock_guard lock(mutex_);
    end(id);
    return 0;
  }
  int migrate(Id& id, rdma_event_channel* to) {
    const std::lock_guard lock(mutex_);
    auto& from = events_of(id);
    for (Event* const event : from)
      if (event->id == &id) static_cast<Channel*>(to)->events.push_back(event);
    std::erase_if(from, [&](const Event* event) { return event->id == &id; });
    id.channel = to;
    return 0;
  }
  int attributes(const Id& id, ibv_qp_attr& of) {
    const std::lock_guard lock(mutex_);
    if (id.peer == nullptr) return fail(EINVAL);
    of.path_mtu = IBV_MTU_1024;
    of.dest_qp_num = id.peer->queue_pair;
    of.rq_psn = id.peer->psn;
    of.sq_psn = id.psn;
    of.ah_attr.grh.traffic_class = id.type_of_service;
    return 0;
  }

  int take(rdma_event_channel* channel, rdma_cm_event** event) {
    const std::lock_guard lock(mutex_);
    auto& events = static_cast<Channel*>(channel)->events;
    if (events.empty()) return fail(EAGAIN);
    *event = events.front();
    events.pop_front();
    ++static_cast<Id*>((*event)->id)->reported;
    return 0;
  }
  int acknowledge(rdma_cm_event* event) {
    const std::lock_guard lock(mutex_);
    --static_cast<Id*>(event->id)->reported;
    acknowledged_.notify_all();
    delete static_cast<Event*>(event);
    return 0;
  }

 private:
  static int fail(int error) {
    errno = error;
    return -1;
  }
  /// Returns the library's own context of the device, which stays open.
  ibv_context* context() {
    static ibv_context* const opened = [] {
      int count = 0;
      ibv_device** const devices = ibv_get_device_list(&count);
      ibv_context* const made = ibv_open_device(devices[0]);
      ibv_free_device_list(devices);
      return made;
    }();
    return opened;
  }
  static std::deque<Event*>& events_of(const Id& id) { return static_cast<Channel*>(id.channel)->events; }
  Id* make_locked(rdma_event_channel* channel, void* context) {
    auto* const made = new Id{};
    made->channel = channel;
    made->context = context;
    made->psn = next_psn_ & 0xFFFFFF;
    next_psn_ += 0x1234;
    ids_.insert(made);
    return made;
  }
  Id* listener_of(std::uint16_t port) {
    for (Id* const id : ids_)
      if (id->state == Id::State::Listening && id->route.addr.src_sin6.sin6_port == port) return id;
    return nullptr;
  }
  Event& add(Id& to, rdma_cm_event_type type, const rdma_conn_param* with = nullptr, std::size_t bytes = 0,
             int status = 0) {
    auto* const event = new Event{};
    event->id = &to;
    event->event = type;
    event->status = status;
    event->bytes.resize(bytes);
    if (with != nullptr) {
      event->param.conn = *with;
      // The responder resources of one side limit the initiator depth of the other.
      std::swap(event->param.conn.responder_resources, event->param.conn.initiator_depth);
      if (with->private_data != nullptr)
        std::memcpy(event->bytes.data(), with->private_data, with->private_data_len);
    }
    event->param.conn.private_data = event->bytes.data();
    event->param.conn.private_data_len = static_cast<std::uint8_t>(bytes);
    events_of(to).push_back(event);
    return *event;
  }
  void refuse(Id& id, const rdma_conn_param* with) {
    if (id.peer != nullptr && id.peer->state != Id::State::Ended) {
      id.peer->state = Id::State::Ended;
      add(*id.peer, RDMA_CM_EVENT_REJECTED, with, kRejectBytes);
    }
    id.state = Id::State::Ended;
  }
  /// Ends what the identifier is for, and notifies the peer.
  void end(Id& id) {
    switch (id.state) {
      case Id::State::Connecting:
      case Id::State::Requested:
      case Id::State::Replied:
        return refuse(id, nullptr);
      case Id::State::Accepted:
      case Id::State::Connected:
        if (id.peer != nullptr && id.peer->state != Id::State::Ended) {
          id.peer->state = Id::State::Ended;
          add(*id.peer, RDMA_CM_EVENT_DISCONNECTED);
        }
        id.state = Id::State::Ended;
        return;
      case Id::State::Idle:
      case Id::State::Listening:
      case Id::State::Ended:
        id.state = Id::State::Ended;
        return;
    }
  }

  std::mutex mutex_;
  std::condition_variable acknowledged_;
  std::set<Id*> ids_;
  std::uint16_t next_port_ = 40000;
  std::uint32_t next_psn_ = kFirstPsn;
};

Id& own(rdma_cm_id* id) {
  return *static_cast<Id*>(id);
}

}  // namespace

extern "C" {

rdma_event_channel* rdma_create_event_channel() {
  return Kernel::get().make_channel();
}
void rdma_destroy_event_channel(rdma_event_channel* channel) {
  Kernel::get().destroy(channel);
}
int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space) {
  *id = Kernel::get().make(channel, context);
  return 0;
}
int rdma_destroy_id(rdma_cm_id* id) {
  Kernel::get().destroy(id);
  return 0;
}
int rdma_bind_addr(rdma_cm_id* id, sockaddr* at) {
  std::memcpy(&id->route.addr.src_storage, at, sizeof(sockaddr_in6));
  return 0;
}
int rdma_listen(rdma_cm_id* id, int) {
  return Kernel::get().listen(own(id));
}
int rdma_set_option(rdma_cm_id* id, int, int, void* value, std::size_t) {
  own(id).type_of_service = *static_cast<const std::uint8_t*>(value);
  return 0;
}
int rdma_resolve_addr(rdma_cm_id* id, sockaddr*, sockaddr* to, int) {
  return Kernel::get().resolve(own(id), *to);
}
int rdma_resolve_route(rdma_cm_id* id, int) {
  return Kernel::get().resolve_route(own(id));
}
int rdma_connect(rdma_cm_id* id, rdma_conn_param* with) {
  return Kernel::get().connect(own(id), *with);
}
int rdma_accept(rdma_cm_id* id, rdma_conn_param* with) {
  return Kernel::get().accept(own(id), *with);
}
int rdma_reject(rdma_cm_id* id, const void* bytes, std::uint8_t count) {
  return Kernel::get().reject(own(id), bytes, count);
}
int rdma_establish(rdma_cm_id* id) {
  return Kernel::get().establish(own(id));
}
int rdma_notify(rdma_cm_id*, ibv_event_type) {
  return 0;
}
int rdma_disconnect(rdma_cm_id* id) {
  return Kernel::get().disconnect(own(id));
}
int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* to) {
  return Kernel::get().migrate(own(id), to);
}
int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attributes, int*) {
  return Kernel::get().attributes(own(id), *attributes);
}
int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  return Kernel::get().take(channel, event);
}
int rdma_ack_cm_event(rdma_cm_event* event) {
  return Kernel::get().acknowledge(event);
}
const char* rdma_event_str(rdma_cm_event_type) {
  return "an event of the model";
}
__be16 rdma_get_src_port(rdma_cm_id* id) {
  return id->route.addr.src_sin.sin_port;
}

}  // extern "C"
