package criclient

// LastRecords is lastRecords, for its fuzz test.
var LastRecords = lastRecords
