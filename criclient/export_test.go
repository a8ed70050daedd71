package criclient

// LastRecords is lastRecords, for its fuzz test.
var LastRecords = lastRecords

// SignalName is signalName, for its table.
var SignalName = signalName
