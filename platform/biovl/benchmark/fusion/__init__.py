"""Visual question answering with a METER fusion module between two towers."""
