-- SPDX-License-Identifier: Apache-2.0
--
-- Wireshark dissector of RPC-over-RDMA version 2 (draft-ietf-nfsv4-rpcrdma-version-two-00), for captures of RoCEv2.
-- Wireshark itself knows version 1. Copy this file into the folder of personal or global Lua plugins, or:
--
--     tshark -X lua_script:rpcrdma2.lua -r capture.pcapng -Y rpcrdma2
--
-- Sends of several packets are joined, and so are continued messages (flag MORE). An RPC message without data in chunks is handed to
-- Wireshark's RPC dissectors; of one with data in chunks the RPC header is shown, and what remains inline as bytes.

local rpcrdma2 = Proto("rpcrdma2", "RPC-over-RDMA version 2")

local VERSION = 2
local PREFIX_BYTES = 20
local MSG, NOMSG, ERROR, CONNPROP = 0, 1, 4, 5
local RESPONSE, MORE = 1, 2
local TYPES = {[MSG] = "RDMA2_MSG", [NOMSG] = "RDMA2_NOMSG", [ERROR] = "RDMA2_ERROR", [CONNPROP] = "RDMA2_CONNPROP"}
local ERRORS = {
  [1] = "RDMA2_ERR_VERS", [2] = "RDMA2_ERR_BAD_XDR", [3] = "RDMA2_ERR_INVAL_HTYPE", [4] = "RDMA2_ERR_INVAL_FLAG",
  [5] = "RDMA2_ERR_READ_CHUNKS", [6] = "RDMA2_ERR_WRITE_CHUNKS", [7] = "RDMA2_ERR_SEGMENTS", [8] = "RDMA2_ERR_WRITE_RESOURCE",
  [9] = "RDMA2_ERR_REPLY_RESOURCE", [10] = "RDMA2_ERR_SYSTEM",
}
local HOST_AUTHENTICATION = 6
local PROPERTIES = {
  [1] = "Maximum Send Size", [2] = "Receive Buffer Size", [3] = "Maximum RDMA Segment Size", [4] = "Maximum RDMA Segment Count",
  [5] = "Reverse Request Support", [HOST_AUTHENTICATION] = "Host Authentication",
}
-- Opcodes of reliable connections that carry a Send, by the part of it. IBTA, volume 1, table 38.
local FIRST, MIDDLE, LAST, ONLY = 1, 2, 3, 4
local SENDS = {[0x00] = FIRST, [0x01] = MIDDLE, [0x02] = LAST, [0x03] = LAST, [0x04] = ONLY, [0x05] = ONLY, [0x16] = LAST, [0x17] = ONLY}
local PSN_MODULUS = 0x1000000
-- Longer Sends, and longer continued messages, are not joined.
local LONGEST_MESSAGE = 16 * 1024 * 1024

local f = {
  xid = ProtoField.uint32("rpcrdma2.xid", "XID", base.HEX),
  version = ProtoField.uint32("rpcrdma2.version", "Version"),
  credit = ProtoField.uint32("rpcrdma2.credit", "Credit", base.HEX),
  limit = ProtoField.uint16("rpcrdma2.credit.limit", "Credit limit", base.DEC, nil, nil, "Most credits that may be outstanding at the sender"),
  granted = ProtoField.uint16("rpcrdma2.credit.granted", "Credits granted", base.DEC, nil, nil, "Newly granted by the sender"),
  type = ProtoField.uint32("rpcrdma2.type", "Header type", base.DEC, TYPES),
  flags = ProtoField.uint32("rpcrdma2.flags", "Flags", base.HEX),
  response = ProtoField.bool("rpcrdma2.flags.response", "RESPONSE", 32, nil, RESPONSE),
  more = ProtoField.bool("rpcrdma2.flags.more", "MORE", 32, nil, MORE),
  invalidate = ProtoField.uint32("rpcrdma2.inv_handle", "Handle to invalidate", base.HEX),
  reads = ProtoField.uint32("rpcrdma2.reads", "Read segments"),
  writes = ProtoField.uint32("rpcrdma2.writes", "Write chunks"),
  write_segments = ProtoField.uint32("rpcrdma2.write.segments", "Segments"),
  reply = ProtoField.uint32("rpcrdma2.reply", "Reply chunk, segments"),
  position = ProtoField.uint32("rpcrdma2.position", "Position"),
  handle = ProtoField.uint32("rpcrdma2.handle", "Handle", base.HEX),
  length = ProtoField.uint32("rpcrdma2.length", "Length"),
  offset = ProtoField.uint64("rpcrdma2.offset", "Offset", base.HEX),
  grant_only = ProtoField.bool("rpcrdma2.grant_only", "Grants credits only"),
  error = ProtoField.uint32("rpcrdma2.error", "Error", base.DEC, ERRORS),
  low = ProtoField.uint32("rpcrdma2.error.low", "Lowest version"),
  high = ProtoField.uint32("rpcrdma2.error.high", "Highest version"),
  maximum = ProtoField.uint32("rpcrdma2.error.maximum", "Maximum"),
  chunk_index = ProtoField.uint32("rpcrdma2.error.chunk_index", "Chunk index"),
  needed = ProtoField.uint32("rpcrdma2.error.bytes_needed", "Bytes needed"),
  properties = ProtoField.uint32("rpcrdma2.properties", "Properties"),
  property = ProtoField.uint32("rpcrdma2.property", "Property", base.DEC, PROPERTIES),
  property_length = ProtoField.uint32("rpcrdma2.property.length", "Length"),
  property_value = ProtoField.uint32("rpcrdma2.property.value", "Value"),
  property_data = ProtoField.bytes("rpcrdma2.property.data", "Data"),
  authentication = ProtoField.bytes("rpcrdma2.host_authentication", "Host authentication"),
  payload = ProtoField.bytes("rpcrdma2.payload", "Payload"),
  payload_bytes = ProtoField.uint32("rpcrdma2.payload.bytes", "Payload bytes in this message"),
  continued_in = ProtoField.framenum("rpcrdma2.continued_in", "Joined in frame", base.NONE),
  continues = ProtoField.framenum("rpcrdma2.continues", "Continues frame", base.NONE),
  rpc_xid = ProtoField.uint32("rpcrdma2.rpc.xid", "RPC XID", base.HEX),
  rpc_type = ProtoField.uint32("rpcrdma2.rpc.msgtype", "RPC message type", base.DEC, {[0] = "Call", [1] = "Reply"}),
  rpc_program = ProtoField.uint32("rpcrdma2.rpc.program", "RPC program"),
  rpc_version = ProtoField.uint32("rpcrdma2.rpc.programversion", "RPC program version"),
  rpc_procedure = ProtoField.uint32("rpcrdma2.rpc.procedure", "RPC procedure"),
}
rpcrdma2.fields = f

local e = {
  malformed = ProtoExpert.new("rpcrdma2.malformed", "The header cannot be parsed", expert.group.MALFORMED, expert.severity.ERROR),
  flags = ProtoExpert.new("rpcrdma2.invalid_flags", "Unknown flags, or MORE where it is not allowed", expert.group.PROTOCOL, expert.severity.ERROR),
  type = ProtoExpert.new("rpcrdma2.invalid_type", "Unknown header type", expert.group.PROTOCOL, expert.severity.ERROR),
  broken = ProtoExpert.new("rpcrdma2.broken_continuation", "Not the next part of the message that is continued", expert.group.SEQUENCE,
                           expert.severity.WARN),
}
rpcrdma2.experts = {e.malformed, e.flags, e.type, e.broken}

local rpc = Dissector.get("rpc")

-- The Base Transport Header of the packet that is being dissected: {opcode, padding, destination, psn}. Its fields in Wireshark's tree are not there in
-- a pass that makes no tree.
local transport

-- What the first pass over the frames has found, by number of the frame; later passes look it up.
local sends      -- joined Send that ends in this frame: ByteArray
local parts      -- this frame is a part of a Send: number of the frame that ends it, false while that is not known
local messages   -- last part of a continued message: {ByteArray, frames}
local followed   -- part of a continued message, not its last: {next frame or nil}
local broken     -- part that follows nothing
-- Of the first pass alone, by destination: the Send, and the continued message, that are under way.
local open_sends, open_messages

function rpcrdma2.init()
  sends, parts, messages, followed, broken = {}, {}, {}, {}, {}
  open_sends, open_messages = {}, {}
end

local function destination(pinfo)
  return tostring(pinfo.dst) .. "/" .. transport.destination
end

local function looks_like_version_2(tvb)
  if tvb:len() < PREFIX_BYTES or tvb(4, 4):uint() ~= VERSION then return false end
  return TYPES[tvb(12, 4):uint()] ~= nil
end

-- Reads the words of a header in order, and notes when there are too few.
local Cursor = {}
Cursor.__index = Cursor

function Cursor.new(tvb, tree, at)
  return setmetatable({tvb = tvb, tree = tree, at = at, ok = true}, Cursor)
end

function Cursor:left()
  return self.tvb:len() - self.at
end

-- The range of the next `bytes`, or nil.
function Cursor:take(bytes)
  if not self.ok or bytes > self:left() then
    self.ok = false
    return nil
  end
  local range = self.tvb(self.at, bytes)
  self.at = self.at + bytes
  return range
end

function Cursor:word(field, tree)
  local range = self:take(4)
  if not range then return 0 end
  if field then (tree or self.tree):add(field, range) end
  return range:uint()
end

-- Whether an optional item follows. A presence word is 0 or 1.
function Cursor:present()
  local word = self:word()
  if word > 1 then self.ok = false end
  return self.ok and word == 1
end

function Cursor:segment(tree, label, with_position)
  local begin = self.at
  local item = tree:add(self.tvb(begin, math.min(self:left(), with_position and 20 or 16)), label)
  if with_position then
    if self:word(f.position, item) ~= 0 then self.data_in_chunks = true end
  end
  self:word(f.handle, item)
  self:word(f.length, item)
  local offset = self:take(8)
  if offset then item:add(f.offset, offset) end
end

function Cursor:segments(tree, field)
  local begin, count = self.at, self:word()
  if not self.ok then return 0 end
  tree:add(field, self.tvb(begin, 4))
  if count * 16 > self:left() then
    self.ok = false
    return 0
  end
  for number = 1, count do self:segment(tree, "Segment " .. number, false) end
  return count
end

function Cursor:lists()
  local empty = true
  local begin, count = self.at, 0
  local list = self.tree:add(self.tvb(begin, math.min(4, self:left())), "Read list")
  while self:present() do
    count, empty = count + 1, false
    self:segment(list, "Read segment " .. count, true)
  end
  list:add(f.reads, count):set_generated()
  begin, count = self.at, 0
  list = self.tree:add(self.tvb(begin, math.min(4, self:left())), "Write list")
  while self:present() do
    count, empty, self.data_in_chunks = count + 1, false, true
    self:segments(list:add(self.tvb(self.at, math.min(4, self:left())), "Write chunk " .. count), f.write_segments)
  end
  list:add(f.writes, count):set_generated()
  if self:present() then
    empty = false
    self:segments(self.tree, f.reply)
  end
  return empty
end

-- Shows the RPC header of a message that is not handed on.
local function rpc_header(tvb, tree)
  local words = {f.rpc_xid, f.rpc_type}
  if tvb:len() >= 24 and tvb(4, 4):uint() == 0 then words = {f.rpc_xid, f.rpc_type, false, f.rpc_program, f.rpc_version, f.rpc_procedure} end
  for number, field in ipairs(words) do
    local at = (number - 1) * 4
    if field and at + 4 <= tvb:len() then tree:add(field, tvb(at, 4)) end
  end
end

-- Notes, in the first pass, how this part of a continued message belongs to the others.
local function follow(pinfo, key, head, more, bytes)
  local open = open_messages[key]
  if open and (open.xid ~= head.xid or open.type ~= head.type or open.response ~= head.response) then
    broken[pinfo.number] = true
    open_messages[key], open = nil, nil
  end
  if not open then
    if not more then return end
    open = {xid = head.xid, type = head.type, response = head.response, bytes = ByteArray.new(), frames = {}}
    open_messages[key] = open
  else
    followed[open.frames[#open.frames]].next = pinfo.number
  end
  if open.bytes:len() + bytes:len() > LONGEST_MESSAGE then
    open_messages[key] = nil
    return
  end
  open.bytes:append(bytes)
  if more then
    table.insert(open.frames, pinfo.number)
    followed[pinfo.number] = {}
  else
    messages[pinfo.number] = {bytes = open.bytes, frames = open.frames}
    open_messages[key] = nil
  end
end

-- The payload of this message, or of all its parts in the last one; nil in the others.
local function joined(tvb, at, pinfo, tree, head, more)
  if not pinfo.visited then
    local bytes = tvb:len() > at and tvb(at):bytes() or ByteArray.new()
    follow(pinfo, destination(pinfo), head, more, bytes)
  end
  if broken[pinfo.number] then tree:add_proto_expert_info(e.broken) end
  local part, message = followed[pinfo.number], messages[pinfo.number]
  if message then
    for _, frame in ipairs(message.frames) do tree:add(f.continues, frame):set_generated() end
    return message.bytes:tvb("Continued message")
  end
  if part then
    if part.next then tree:add(f.continued_in, part.next):set_generated() end
    return nil
  end
  return tvb:len() > at and tvb(at):tvb() or nil
end

local function properties(tvb, tree)
  local cursor = Cursor.new(tvb, tree, 0)
  local count = cursor:word(f.properties)
  local seen = {}
  for _ = 1, count do
    if not cursor.ok then break end
    local id_range = cursor:take(4)
    local length_range = cursor:take(4)
    if not length_range then break end
    local id, length = id_range:uint(), length_range:uint()
    local item = tree:add(f.property, id_range)
    item:add(f.property_length, length_range)
    local data = cursor:take(length)
    if not data then break end
    local padding = -length % 4
    if not cursor:take(padding) and padding > 0 then break end
    if PROPERTIES[id] then
      if seen[id] then cursor.ok = false end
      seen[id] = true
    end
    if length > 0 and id == HOST_AUTHENTICATION then
      local inner = length >= 4 and data(0, 4):uint() or -1
      if inner < 0 or 4 + inner + -inner % 4 ~= length then
        cursor.ok = false
      elseif inner > 0 then
        item:add(f.authentication, data(4, inner))
      end
    elseif length > 0 and PROPERTIES[id] then
      if length == 4 then item:add(f.property_value, data) else cursor.ok = false end
    elseif length > 0 then
      item:add(f.property_data, data)
    end
  end
  return cursor.ok and cursor:left() == 0
end

-- An ERR_VERS has one of two forms: that of the draft, and without flags that of RFC 8166, which a peer that does not know version 2 sends.
local RFC8166_ERR_VERS_BYTES = 28
local function error_body(tvb, tree)
  local rfc8166 = tvb:len() == RFC8166_ERR_VERS_BYTES and tvb(16, 4):uint() == 1 and tvb(20, 4):uint() <= tvb(24, 4):uint() and
                      tvb(8, 4):uint() % 0x10000 ~= 0
  local cursor = Cursor.new(tvb, tree, rfc8166 and 16 or 20)
  if not rfc8166 then
    local flags = tree:add(f.flags, tvb(16, 4))
    flags:add(f.response, tvb(16, 4))
  end
  local code = cursor:word(f.error)
  if code == 1 then
    cursor:word(f.low)
    cursor:word(f.high)
  elseif code >= 5 and code <= 7 then
    cursor:word(f.maximum)
  elseif code == 8 then
    cursor:word(f.chunk_index)
    cursor:word(f.needed)
  elseif code == 9 then
    cursor:word(f.needed)
  end
  return cursor.ok, ERRORS[code] or ("error " .. code)
end

local function rpc_payload(payload, pinfo, root, tree, whole)
  if whole then
    rpc:call(payload, pinfo, root)
  else
    rpc_header(payload, tree)
    tree:add(f.payload, payload())
  end
end

local function message_body(tvb, pinfo, root, tree, head)
  local cursor = Cursor.new(tvb, tree, PREFIX_BYTES)
  cursor:word(f.invalidate)
  local empty = cursor:lists()
  local left = cursor:left()
  if not cursor.ok or (head.type == NOMSG) ~= (left == 0) then
    tree:add_proto_expert_info(e.malformed)
    return ""
  end
  if head.more and (head.type == NOMSG or not empty) then
    tree:add_proto_expert_info(e.flags)
    return ""
  end
  if head.type == NOMSG then
    if empty then tree:add(f.grant_only, true):set_generated() end
    return empty and ", grants only" or ""
  end
  tree:add(f.payload_bytes, left):set_generated()
  local payload = joined(tvb, cursor.at, pinfo, tree, head, head.more)
  if not payload then return ", continued" end
  return "", function() rpc_payload(payload, pinfo, root, tree, not cursor.data_in_chunks) end
end

local function property_body(tvb, pinfo, tree, head)
  local body = joined(tvb, PREFIX_BYTES, pinfo, tree, head, head.more)
  if not body and head.more then return ", continued" end
  if not body or not properties(body, tree) then tree:add_proto_expert_info(e.malformed) end
  return ""
end

local function message(tvb, pinfo, root)
  local tree = root:add(rpcrdma2, tvb())
  local head = {xid = tvb(0, 4):uint(), type = tvb(12, 4):uint()}
  tree:add(f.xid, tvb(0, 4))
  tree:add(f.version, tvb(4, 4))
  local credit = tree:add(f.credit, tvb(8, 4))
  credit:add(f.limit, tvb(8, 2))
  credit:add(f.granted, tvb(10, 2))
  tree:add(f.type, tvb(12, 4))
  local note, hand_on = "", nil
  if head.type == ERROR then
    local ok, name = error_body(tvb, tree)
    if not ok then tree:add_proto_expert_info(e.malformed) end
    note = " " .. name
  else
    local word = tvb(16, 4):uint()
    head.response, head.more = word % 2 == 1, math.floor(word / 2) % 2 == 1
    local flags = tree:add(f.flags, tvb(16, 4))
    flags:add(f.response, tvb(16, 4))
    flags:add(f.more, tvb(16, 4))
    if word > RESPONSE + MORE then
      tree:add_proto_expert_info(e.flags)
    elseif head.type == CONNPROP then
      note = property_body(tvb, pinfo, tree, head)
    else
      note, hand_on = message_body(tvb, pinfo, root, tree, head)
    end
  end
  pinfo.cols.protocol = "RPCoRDMA2"
  pinfo.cols.info = string.format("%s%s xid 0x%08x", TYPES[head.type], note, head.xid)
  if hand_on then hand_on() end
end

-- Notes, in the first pass, which Send this packet belongs to.
local function gather(tvb, pinfo, place)
  local key, psn = destination(pinfo), transport.psn
  local open = open_sends[key]
  if place == FIRST then
    if not looks_like_version_2(tvb) then
      open_sends[key] = nil
      return
    end
    open = {bytes = ByteArray.new(), frames = {}}
    open_sends[key] = open
  elseif not open or open.next ~= psn then
    return -- lost, or sent again
  end
  open.next = (psn + 1) % PSN_MODULUS
  open.bytes:append(tvb():bytes())
  if place == LAST then
    for _, frame in ipairs(open.frames) do parts[frame] = pinfo.number end
    sends[pinfo.number] = open.bytes
    open_sends[key] = nil
  elseif open.bytes:len() > LONGEST_MESSAGE then
    open_sends[key] = nil
  else
    table.insert(open.frames, pinfo.number)
    parts[pinfo.number] = false
  end
end

local function dissect(tvb, pinfo, root)
  transport.offered = true
  local place = SENDS[transport.opcode]
  if not place or tvb:len() < transport.padding then return false end
  if transport.padding > 0 then tvb = tvb(0, tvb:len() - transport.padding):tvb() end
  if place == ONLY then
    if not looks_like_version_2(tvb) then return false end
    message(tvb, pinfo, root)
    return true
  end
  if not pinfo.visited then gather(tvb, pinfo, place) end
  local send = sends[pinfo.number]
  if send then
    message(send:tvb("Joined Send"), pinfo, root)
    return true
  end
  local last = parts[pinfo.number]
  if last == nil then return false end
  local tree = root:add(rpcrdma2, tvb(), "RPC-over-RDMA version 2, part of a Send")
  if last then tree:add(f.continued_in, last):set_generated() end
  pinfo.cols.protocol = "RPCoRDMA2"
  return true
end

rpcrdma2:register_heuristic("infiniband.payload", function(tvb, pinfo, root) return transport ~= nil and dissect(tvb, pinfo, root) end)

-- Stands before Wireshark's dissector of RoCEv2, to know the transport header of what that hands on. A payload that another heuristic has
-- taken is looked at all the same: one that has just recognized something is asked before the others.
local ROCE_PORT = 4791
local BTH_BYTES, ICRC_BYTES = 12, 4
local ports = DissectorTable.get("udp.port")
local infiniband = ports:get_dissector(ROCE_PORT)
local roce = Proto("rpcrdma2_roce", "RoCEv2 that may carry RPC-over-RDMA version 2")

function roce.dissector(tvb, pinfo, root)
  transport = nil
  local payload = tvb:len() - BTH_BYTES - ICRC_BYTES
  if payload >= 0 then
    transport = {opcode = tvb(0, 1):uint(), padding = tvb:range(1, 1):bitfield(2, 2), destination = tvb(5, 3):uint(), psn = tvb(9, 3):uint()}
  end
  local used = infiniband:call(tvb, pinfo, root)
  if transport and not transport.offered and payload > 0 then dissect(tvb(BTH_BYTES, payload):tvb(), pinfo, root) end
  return used
end

ports:add(ROCE_PORT, roce)
