form Measure
  sentence file
endform
repeat
  sound = Read from file: file$
  pitch = To Pitch (ac): 0, 75, 15, "no", 0.03, 0.45, 0.01, 0.35, 0.14, 600
  selectObject: sound
  formant = To Formant (burg): 0, 5, 5500, 0.025, 50
  removeObject: sound, pitch, formant
until 0
