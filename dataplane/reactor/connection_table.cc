// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/connection_table.h"

namespace sluice::reactor {

rpcrdma::Connection* ConnectionTable::find(rdma::CmId id) noexcept {
  for (std::uint16_t i = 0; i < size(); ++i)
    if (records_[i].cm_id == id && engine_.connection(i).is_open()) return &engine_.connection(i);
  return nullptr;
}

rpcrdma::Connection* ConnectionTable::find(std::uint32_t number, std::uint32_t cm_id) noexcept {
  if (number >= records_.size()) return nullptr;
  rpcrdma::Connection& connection = engine_.connection(static_cast<std::uint16_t>(number));
  const bool same = static_cast<std::uint32_t>(records_[number].cm_id) == cm_id;
  return connection.is_open() && same ? &connection : nullptr;
}

rpcrdma::Connection* ConnectionTable::find_dialed(std::uint32_t number, std::uint32_t queue_pair) noexcept {
  if (number >= records_.size()) return nullptr;
  rpcrdma::Connection& connection = engine_.connection(static_cast<std::uint16_t>(number));
  const ConnectionRecord& record = records_[number];
  const bool same = record.outgoing && !record.established && record.queue_pair == queue_pair;
  return connection.is_open() && same ? &connection : nullptr;
}

}  // namespace sluice::reactor
